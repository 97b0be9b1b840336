"""Logins: what is sent, and which answers of a broker are refused."""

import base64
import hashlib
import hmac

import pytest

from kafka_source.client_config.sasl import OAuth
from kafka_source.kafka_client.sasl import Exchange, SaslError, Tokens, oauthbearer, plain, scram

# The example of RFC 7677.
NONCE, SALT = "rOprNGfwEbeRWgbNEkqO", "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"r={SERVER_NONCE},s={SALT},i=4096"
LAST = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def after_first(answer: str, *, username: str = "user") -> tuple[Exchange, bytes]:
    """A login by SCRAM-SHA-256 to which a broker has answered once, and what it sends then."""
    exchange = scram("sha256", username, "pencil", NONCE)
    next(exchange)
    return exchange, exchange.send(answer.encode())


def test_scram_is_the_example_of_its_standard() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    assert next(exchange) == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.send(FIRST.encode()) == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    with pytest.raises(StopIteration):
        exchange.send(LAST.encode())


def test_a_name_is_escaped() -> None:
    assert next(scram("sha512", "a,b=c", "pencil", NONCE)) == f"n,,n=a=2Cb=3Dc,r={NONCE}".encode()


def test_two_logins_have_two_nonces() -> None:
    first, second = (next(scram("sha256", "user", "pencil")) for _ in range(2))
    assert first != second
    assert first.count(b",") == 3


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (FIRST.replace("4096", "4095"), "the broker asks for 4095 iterations, but this client accepts 4096 to"),
        (FIRST.replace("4096", "1"), "the broker asks for 1 iterations"),
        (FIRST.replace("4096", "1000001"), "the broker asks for 1000001 iterations"),
        (FIRST.replace("4096", "9" * 5000), "no number"),
        (FIRST.replace("4096", "-4096"), "no number"),
        (FIRST.replace(NONCE, "another"), "nonce does not continue"),
        (FIRST.replace(SERVER_NONCE, NONCE), "nonce does not continue"),
        (FIRST.replace(SALT, "!"), "not base64"),
        (f"m=ext,{FIRST}", "another form"),
        ("e=other-error", "nonce does not continue"),
        ("", "another form"),
    ],
)
def test_a_first_answer_that_is_wrong_is_refused(answer: str, told: str) -> None:
    with pytest.raises(SaslError, match=told):
        after_first(answer)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("v=" + base64.b64encode(bytes(32)).decode(), "proof is wrong"),
        ("v=" + LAST[2:10] + "==", "proof is wrong|not base64"),
        ("v=", "proof is wrong"),
        ("e=invalid-proof", "refuses the login: invalid-proof"),
        ("x=1", "proof is wrong"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(answer: str, told: str) -> None:
    exchange, _ = after_first(FIRST)
    with pytest.raises(SaslError, match=told):
        exchange.send(answer.encode())


def test_what_a_broker_stores_verifies_the_proof() -> None:
    """As `ScramSaslServer` checks it, with SHA-512 and 8,192 iterations."""
    exchange = scram("sha512", "user", "pencil", NONCE)
    first_bare = next(exchange).decode().removeprefix("n,,")
    answer = f"r={NONCE}server,s={SALT},i=8192"
    final, _, proof = exchange.send(answer.encode()).decode().rpartition(",p=")
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", base64.b64decode(SALT), 8192)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signature = hmac.digest(stored, f"{first_bare},{answer},{final}".encode(), "sha512")
    key = bytes(a ^ b for a, b in zip(signature, base64.b64decode(proof), strict=True))
    assert hashlib.sha512(key).digest() == stored


def test_plain_is_one_message() -> None:
    exchange = plain("alice", "größe")
    assert next(exchange) == b"\0alice\0" + "größe".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_a_token_goes_with_the_extensions() -> None:
    tokens = Tokens(OAuth(principal="alice", extensions={"tenant": "t1", "zone": "z"}))
    exchange = oauthbearer(tokens)
    assert next(exchange) == f"n,,\1auth=Bearer {tokens.token()}\1tenant=t1\1zone=z\1\1".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_a_refused_token_is_answered_so_that_the_broker_says_why() -> None:
    exchange = oauthbearer(Tokens(OAuth(principal="alice")))
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(SaslError, match="refuses the token"):
        exchange.send(b"")
