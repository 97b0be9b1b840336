"""The client of a schema registry, against a real HTTP server of the test's."""

import base64
import json
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_source.client_config import Settings
from kafka_source.errors import InvalidConfigurationError, OptionError, RetriableError
from kafka_source.options import check_load
from kafka_source.values.reader_schema import reader_schema
from kafka_source.values.references import inline_references
from kafka_source.values.registry import RegisteredSchema, Registry, Unusable, registry_of
from tests.support.registry_server import RegistryServer

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "double"}]}
SECRET = "hunter2-of-the-registry"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        yield started


def client(server: RegistryServer, **settings: str) -> Registry:
    return Registry(Settings({"url": server.url, **{name.replace("_", "."): one for name, one in settings.items()}}))


def test_an_id_is_asked_for_once_whoever_asks(server: RegistryServer) -> None:
    server.add(7, ORDER)
    registry = client(server)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(registry.by_id(7))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [RegisteredSchema(7, json.dumps(ORDER))] * 8
    assert server.asked == ["/schemas/ids/7"]
    same = Settings({"url": server.url})
    assert registry_of(same) is registry_of(Settings({"URL": server.url}))


ENCRYPT = {"name": "pii", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII", "PCI"]}


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ({"domainRules": [ENCRYPT]}, "rw"),
        ({"domainRules": [{**ENCRYPT, "mode": "READ"}]}, "r"),
        ({"domainRules": [{**ENCRYPT, "mode": "WRITE", "type": "JSONATA", "tags": None}]}, "w"),
        ({"encodingRules": [{**ENCRYPT, "type": "ENCRYPT_PAYLOAD"}]}, "rw"),
        ({"domainRules": [{**ENCRYPT, "disabled": True}]}, ""),
        ({"domainRules": [{**ENCRYPT, "kind": "CONDITION", "type": "CEL"}]}, ""),
        ({"migrationRules": [{**ENCRYPT, "mode": "UPGRADE", "type": "JSONATA"}]}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_schema_whose_rules_would_change_the_values_is_refused(
    server: RegistryServer, rules: object, refused: str
) -> None:
    server.add(7, ORDER, "orders-value", ruleSet=rules)
    for find in (lambda one: one.by_id(7), lambda one: one.newest("orders-value", ""), lambda one: one.by_ids([7])[7]):
        for side, writes in (("r", False), ("w", True)):
            found, ignoring = find(client(server)), find(client(server, rules="ignore"))
            assert ignoring.check("avro", writes=writes) is ignoring
            if side not in refused:
                assert found.check("avro", writes=writes) is found
                continue
            with pytest.raises(InvalidConfigurationError, match=r"Rules of .* id 7 .* schema\.rules=ignore"):
                found.check("avro", writes=writes)


def test_the_error_about_rules_says_what_the_column_would_have_contained(server: RegistryServer) -> None:
    server.add(7, ORDER, ruleSet={"domainRules": [ENCRYPT]})
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "schema.registry.url": server.url}
    given |= {"value.format": "avro", "value.schema.id": "7"}
    with pytest.raises(InvalidConfigurationError) as refused:
        reader_schema(options := check_load(given).options, options.of_value)
    assert "pii (ENCRYPT for fields with the tag PII or PCI)" in str(refused.value)
    assert "the column would contain encrypted bytes" in str(refused.value)
    ignoring = check_load({**given, "schema.rules": "Ignore"}).options
    assert reader_schema(ignoring, ignoring.of_value).id == 7


def test_the_newest_schema_of_a_subject_is_known_by_its_id_too(server: RegistryServer) -> None:
    server.add(7, ORDER, "a%2Fb-value")
    registry = client(server)
    assert registry.newest("a/b-value", "").id == 7
    assert registry.by_id(7) == RegisteredSchema(7, json.dumps(ORDER))
    assert server.asked == ["/subjects/a%2Fb-value/versions/latest"]


def test_requests_share_a_connection_and_one_that_was_closed_is_made_anew(server: RegistryServer) -> None:
    registry = client(server)
    for number in range(4):
        server.add(number, ORDER)
    assert all(isinstance(registry.by_id(number), RegisteredSchema) for number in (0, 1))
    server.disconnect()
    assert all(isinstance(registry.by_id(number), RegisteredSchema) for number in (2, 3))
    assert len(server.connections) == 2
    assert len(set(server.asked)) == 4


def test_a_server_that_sends_a_byte_now_and_then_does_not_answer() -> None:
    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            while True:
                peer.sendall(b"H")
                ended.wait(0.05)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        registry = Registry(Settings({"url": f"http://127.0.0.1:{listener.getsockname()[1]}", "timeout.ms": "1"}))
        with pytest.raises(RetriableError, match="no answer within 1 s"):
            registry.by_id(7)
        # The client has closed the connection.
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("later", ["3600", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_registry_that_asks_to_come_later_is_left_alone(server: RegistryServer, later: str) -> None:
    server.add(7, ORDER)
    server.first = [(429, {"Retry-After": later}, b"")]
    with pytest.raises(RetriableError, match="HTTP 429"):
        client(server).by_id(7)
    server.first = [(429, {"Retry-After": "0"}, b""), (503, {"Retry-After": "soon"}, b"")]
    assert isinstance(client(server).by_id(7), RegisteredSchema)
    assert len(server.asked) == 4


def test_the_next_url_of_the_list_is_asked(server: RegistryServer) -> None:
    gone = RegistryServer()
    gone._server.server_close()
    server.add(7, ORDER)
    assert Registry(Settings({"url": f"{gone.url}, {server.url}/"})).by_id(7) == RegisteredSchema(7, json.dumps(ORDER))


def test_a_url_that_does_not_answer_is_asked_last_from_then_on(server: RegistryServer) -> None:
    """Else each of many requests would wait for it anew: a schema with references could never be read in time."""
    units = [{"type": "enum", "name": f"Unit{n}", "symbols": ["A"]} for n in range(4)]
    for n, unit in enumerate(units):
        server.add(n, unit, f"unit{n}")
    references = [{"name": f"Unit{n}", "subject": f"unit{n}", "version": 1} for n in range(4)]
    server.add(7, ORDER, references=references)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}, {server.url}"
        registry = Registry(Settings({"url": url, "timeout.ms": "1500"}))
        with pytest.raises(RetriableError, match="does not answer"):
            registry.by_id(7)
        assert isinstance(registry.by_id(7), RegisteredSchema)
        assert registry.newest("unit0", "").id == 0


def test_an_id_that_comes_late_is_waited_for_and_one_that_does_not_come_is_asked_for_with_pauses(
    server: RegistryServer,
) -> None:
    registry = client(server, timeout_ms="1500")
    server.first = [answer(404, error_code=40403)]
    server.add(7, ORDER)
    assert isinstance(registry.by_ids([7])[7], RegisteredSchema)
    # It was in vain that this one was waited for, so a while later it is asked for without patience.
    assert isinstance(registry.by_ids([8])[8], Unusable)
    asked = len(server.asked)
    assert isinstance(registry.by_ids([8])[8], Unusable)
    assert len(server.asked) == asked
    started = time.monotonic()
    assert isinstance(registry.by_ids([9])[9], Unusable)
    assert time.monotonic() - started < 1


def test_ids_that_no_registry_has_and_too_many_unknown_ones_are_not_asked_for(server: RegistryServer) -> None:
    registry = client(server, timeout_ms="1")
    server.add(1, ORDER)
    found = registry.by_ids(range(1, 500))
    assert [number for number, one in found.items() if isinstance(one, RegisteredSchema)] == [1]
    assert 300 < len(server.asked) < 450
    assert "300 unknown ids in a minute" in str(found[499])
    server.asked.clear()
    assert "ids above" in str(registry.by_ids([1 << 31, (1 << 64) - 1]))
    assert server.asked == []


def test_logins_are_sent_and_never_shown(server: RegistryServer) -> None:
    server.add(7, ORDER)
    basic = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    in_url = server.url.replace("http://", f"http://me:{SECRET}@")
    for more, header in [
        ({"basic.auth.user.info": f"me:{SECRET}"}, basic),
        ({"bearer.auth.token": SECRET, "bearer.auth.logical.cluster": "lsrc-1"}, f"Bearer {SECRET}"),
        ({"url": in_url}, basic),
    ]:
        all_of_it = Settings({"url": server.url, **more})
        registry = Registry(all_of_it)
        registry.by_id(7)
        assert server.headers["Authorization"] == header
        assert SECRET not in repr(registry)
    assert "lsrc-1" not in server.headers.values()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"url": f"ftp://me:{SECRET}@host"},
        {"url": f"http://me:{SECRET}@[host"},
        {"url": "http://host", "basic.auth.user.info": SECRET},
        {"url": "http://host", "basic.auth.user.info": f"a:{SECRET}", "bearer.auth.token": SECRET},
        {"url": "http://host", "basic.auth.credentials.source": "SASL_INHERIT"},
        {"url": "https://host", "ssl.ca.location": "/nowhere.pem"},
    ],
)
def test_wrong_settings_are_named_without_secrets(settings: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"schema\.registry\.") as caught:
        Registry(Settings(settings))
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(pickle.loads(pickle.dumps(caught.value)).__dict__)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("bearer.auth.token", f"{SECRET}\nx"),
        ("bearer.auth.token", f"{SECRET}\r\n x"),
        ("bearer.auth.token", f"{SECRET}€"),
        ("bearer.auth.logical.cluster", f"{SECRET}\0"),
        ("bearer.auth.identity.pool.id", f"{SECRET}Ω"),
        ("url", f"http://me:{SECRET}@registry..local:8081"),
        ("url", f"http://me:{SECRET}@{'r' * 64}:8081"),
        ("url", f"http://me:{SECRET}@regi stry"),
        ("url", f"http://me:{SECRET}@registry:port"),
        ("url", f"http://me:{SECRET}@registry/a path"),
        ("url", f"http://me:{SECRET}@registry/\x7f"),
        ("url", f"http://me:{SECRET}@registry/é"),
        ("url", f"http://good, https://me:{SECRET}@registry/é"),
    ],
)
def test_what_a_request_cannot_have_is_refused_before_the_first_one_and_not_shown(option: str, value: str) -> None:
    with pytest.raises(OptionError) as caught:
        Registry(Settings({"url": "http://registry", option: value}))
    assert caught.value.option == f"schema.registry.{option}"
    assert SECRET not in str(caught.value)
    assert str(caught.value).count("schema.registry.") == 1


@pytest.fixture(scope="module")
def listening() -> Iterator[RegistryServer]:
    with RegistryServer() as started:
        started.add(7, ORDER)
        yield started


@given(st.text(st.characters(max_codepoint=0x17F)).map(str.strip).filter(bool))
@settings(max_examples=50)
def test_a_token_is_sent_unchanged_or_refused(listening: RegistryServer, token: str) -> None:
    try:
        client(listening, bearer_auth_token=token).by_id(7)
    except OptionError as error:
        assert error.option == "schema.registry.bearer.auth.token"
        assert not (token.isascii() and token.isprintable())
    else:
        assert listening.headers["Authorization"] == f"Bearer {token}"


def test_a_name_in_another_script_has_an_address() -> None:
    assert (
        repr(Registry(Settings({"url": "http://Zürich.example:81/a"}))) == "Registry(http://xn--zrich-kva.example:81/a)"
    )
    assert repr(Registry(Settings({"url": "http://[::1]:81/"}))) == "Registry(http://[::1]:81)"


@pytest.mark.parametrize(
    "proxy", ["http://proxy:abc", "proxy..local:3128", "http://pro xy", "http://[proxy", "http://"]
)
def test_a_proxy_that_is_no_url_is_named_by_its_variable(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy.replace("http://", f"http://me:{SECRET}@"))
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(InvalidConfigurationError, match="environment variable http_proxy") as caught:
        Registry(Settings({"url": "http://registry.invalid"})).by_id(7)
    assert SECRET not in str(caught.value) and "schema.registry" not in str(caught.value)


def test_references_are_included_where_they_are_first_used(server: RegistryServer) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "unit", "type": "Unit"}]}
    unit = {"type": "enum", "name": "Unit", "symbols": ["EUR"]}
    price = [{"name": name, "type": ["null", "shop.Money"]} for name in ("net", "gross")]
    server.add(1, unit, "unit")
    server.add(2, money, "money", references=[{"name": "Unit", "subject": "unit", "version": 1}])
    order = {"type": "record", "name": "Order", "namespace": "other", "fields": price}
    server.add(3, order, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    found = client(server).by_id(3)
    assert isinstance(found, RegisteredSchema)
    net, gross = json.loads(found.text)["fields"]
    included = net["type"][1]
    assert included["name"] == "Money"
    assert included["fields"][0]["type"] == {**unit, "namespace": ""}
    assert gross["type"] == ["null", "shop.Money"]


@pytest.mark.parametrize("name", ["shop.Money", "money.avsc"])
def test_types_are_found_wherever_a_schema_that_is_referred_to_defines_them(server: RegistryServer, name: str) -> None:
    """As in Java, where the name of a reference says nothing about the types that it brings."""
    unit = {"type": "enum", "name": "Unit", "symbols": ["EUR"]}
    fields = [{"name": "unit", "type": ["null", unit]}, {"name": "other", "type": {"type": "array", "items": "Unit"}}]
    server.add(1, {"type": "record", "name": "Money", "namespace": "shop", "fields": fields}, "money")
    of_order = [{"name": "unit", "type": "shop.Unit"}, {"name": "price", "type": "shop.Money"}]
    order = {"type": "record", "name": "Order", "namespace": "other", "fields": of_order}
    server.add(2, order, references=[{"name": name, "subject": "money", "version": 1}])
    found = client(server).by_id(2)
    assert isinstance(found, RegisteredSchema)
    first, price = (field["type"] for field in json.loads(found.text)["fields"])
    assert first == {**unit, "namespace": "shop"}
    assert price["name"] == "Money"
    assert [field["type"] for field in price["fields"]] == [["null", "shop.Unit"], {"type": "array", "items": "Unit"}]


def test_a_version_that_is_referred_to_may_be_deleted(server: RegistryServer) -> None:
    """The records are still there, and the registry gives the schema by its id."""
    server.add(1, {"type": "enum", "name": "Unit", "symbols": ["EUR"]}, "unit")
    server.add(2, ["null", "Unit"], references=[{"name": "Unit", "subject": "unit", "version": 1}])
    version = "/subjects/unit/versions/1"
    server.answers[f"{version}?deleted=true"] = server.answers.pop(version)
    assert isinstance(client(server).by_id(2), RegisteredSchema)


def test_what_a_schema_may_cost_is_bounded(server: RegistryServer) -> None:
    server.add(1, {"type": "string"}, "deep", references=[{"name": "x", "subject": "deep", "version": 1}])
    server.add(2, "x" * (1 << 20))
    many = [{"name": f"n{n}", "subject": "plain", "version": 1} for n in range(101)]
    server.add(3, {"type": "string"}, references=many)
    server.add(4, {"type": "string"}, "plain")
    chain = [{"name": f"c{n + 1}", "subject": f"c{n + 1}", "version": 1} for n in range(20)]
    for number, reference in enumerate(chain):
        server.add(100 + number, {"type": "string"}, f"c{number}", references=[reference])
    server.add(6, "[" * 100_000, references=[{"name": "x", "subject": "plain", "version": 1}])
    registry = client(server)
    for number, words in {2: "larger than", 3: "more than 100 ref", 100: "16 levels", 6: "no valid"}.items():
        found = registry.by_id(number)
        assert isinstance(found, Unusable)
        assert words in found.reason
    # It refers to itself.
    assert isinstance(registry.by_id(1), RegisteredSchema)


def test_a_schema_of_protobuf_comes_with_the_files_that_it_imports(server: RegistryServer) -> None:
    server.add(1, "message Unit {}", "unit", schemaType="PROTOBUF")
    server.add(2, "message Money {}", "money", references=[{"name": "unit.proto", "subject": "unit", "version": 1}])
    of_money = [{"name": "shop/money.proto", "subject": "money", "version": 1}]
    server.add(3, "message Order {}", schemaType="PROTOBUF", references=of_money)
    found = client(server).by_id(3)
    imports = (("shop/money.proto", "message Money {}"), ("unit.proto", "message Unit {}"))
    assert found == RegisteredSchema(3, "message Order {}", "PROTOBUF", imports)
    assert found.check("protobuf") is found
    assert found.check("avro") == Unusable("the schema with id 3 is of type PROTOBUF, and not AVRO")


def test_a_type_of_its_own_is_not_replaced() -> None:
    text = json.dumps({"type": "array", "items": {"type": "map", "values": ["null", "a.T", "a.T"]}})
    fixed = {"type": "fixed", "namespace": "a", "name": "a.T", "size": 3}
    found = json.loads(inline_references(text, [json.dumps(fixed)]))
    assert found["items"]["values"] == ["null", fixed, "a.T"]


def answer(status: int, **body: object) -> tuple[int, dict[str, str], bytes]:
    return status, {}, json.dumps(body).encode()


def test_a_schema_is_registered_once_in_a_process(server: RegistryServer) -> None:
    server.answers["/subjects/a%2Fb-value/versions"] = answer(200, id=9)
    registry = client(server)
    assert [registry.register("a/b-value", '"long"', "AVRO") for _ in range(3)] == [9, 9, 9]
    registry.register("a/b-value", "{}", "JSON")
    # Registries that know one type only know no name of it.
    assert server.posted == [{"schema": '"long"'}, {"schema": "{}", "schemaType": "JSON"}]


def test_a_sink_goes_on_with_the_newest_schema_that_it_knows(server: RegistryServer) -> None:
    registry = client(server, timeout_ms="300")
    server.first = [(503, {}, b"")] * 100
    with pytest.raises(RetriableError):
        registry.newest("s", "", or_known=True)
    server.first = []
    server.add(7, ORDER, "s")
    assert registry.newest("s", "", or_known=True).id == 7
    server.first = [(503, {}, b"")] * 100
    assert registry.newest("s", "", or_known=True).id == 7
    with pytest.raises(RetriableError):
        registry.newest("s", "")
