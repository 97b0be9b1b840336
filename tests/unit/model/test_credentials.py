"""Which slots of a task have to be verified."""

from kafka_source.model.credentials import SlotCredentials, representative_slots


def slot(number: int, *, group: str = "g", generation: int = 3, per_member_epoch: bool = False) -> SlotCredentials:
    return SlotCredentials(
        group, generation, f"member-{number}", f"instance-{number}", number, per_member_epoch=per_member_epoch
    )


def test_one_slot_of_a_classic_generation_vouches_for_the_others() -> None:
    assert representative_slots(slot(number) for number in (2, 0, 1)) == [slot(0)]


def test_each_slot_vouches_for_itself_where_brokers_assign() -> None:
    slots = [slot(number, per_member_epoch=True) for number in range(3)]
    assert representative_slots(slots) == slots


def test_no_slot_vouches_for_another_generation_or_group() -> None:
    slots = [slot(0), slot(1, generation=4), slot(2, group="h")]
    assert representative_slots(slots) == slots


def test_nobody_has_to_vouch_without_a_group() -> None:
    assert representative_slots([]) == []
