"""Make texts of brokers, registries and records safe for a terminal."""


def visible(text: str, keep: str = "") -> str:
    """Return a text with an escape such as `\\x1b` instead of each character that is not printable.

    Such characters can clear a screen, hide a line, or add a line that looks like another record.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode("ascii") for one in text
    )
