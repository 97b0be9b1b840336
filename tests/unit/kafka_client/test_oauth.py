"""Tokens for OAUTHBEARER: when a token server that fails ends a login, and what waits for it meanwhile."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import OAuth
from kafka_source.client_config.servers import Endpoint
from kafka_source.errors import AuthenticationError, RetriableError
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient
from kafka_source.kafka_client.metadata import Broker
from kafka_source.kafka_client.sasl import Tokens
from tests.support.fake_broker import FakeBroker

SECRET = "s3cret-of-the-client"


class TokenServer:
    """Gives out token-1, token-2 and so on.

    Attributes:
        status: What it answers; 200: a token.
        seconds: How long its tokens are good for.
        moved_to: Where its answers redirect to; "": nowhere.
        asked: How often it was asked.
        answers: While it is not set, requests wait.
    """

    def __init__(self) -> None:
        self.status, self.seconds, self.asked = 200, 300.0, 0
        self.moved_to = ""
        self.answers = threading.Event()
        self.answers.set()
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                tokens.asked += 1
                number = tokens.asked
                tokens.answers.wait(60)
                self.send_response(tokens.status)
                if tokens.moved_to:
                    self.send_header("Location", tokens.moved_to)
                self.end_headers()
                self.wfile.write(json.dumps({"access_token": f"token-{number}", "expires_in": tokens.seconds}).encode())

            # What a redirect of a POST becomes.
            do_GET = do_POST

        self._pages = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._pages.server_port}/token"
        threading.Thread(target=self._pages.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        self._pages.shutdown()
        self._pages.server_close()


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    with closing(TokenServer()) as server:
        yield server


def oauth(tokens: TokenServer) -> OAuth:
    return OAuth(tokens.url, "etl", SECRET)


def client(tokens: TokenServer, broker: FakeBroker) -> KafkaClient:
    login = f'OAuthBearerLoginModule required clientId="etl" clientSecret="{SECRET}";'
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
        "sasl.jaas.config": f"org.apache.kafka.common.security.oauthbearer.{login}",
    }
    return KafkaClient(Settings(settings))


def test_a_token_is_replaced_before_its_end(tokens):
    provider = Tokens(oauth(tokens))
    assert [provider.token(), provider.token()] == ["token-1", "token-1"]
    eager = Tokens(oauth(tokens), refresh_after=0.0)
    assert [eager.token(), eager.token()] == ["token-2", "token-3"]


@pytest.mark.parametrize("status", [500, 503, 429, 401])
def test_a_token_that_is_good_still_serves_when_no_other_comes(tokens, status):
    provider = Tokens(oauth(tokens), refresh_after=0.0)
    assert provider.token() == "token-1"
    tokens.status = status
    assert provider.token() == "token-1"
    # Nobody asks at each connection of a server that is in trouble.
    assert provider.token() == "token-1"
    assert tokens.asked == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, RetriableError), (503, RetriableError), (429, RetriableError), (401, AuthenticationError)],
)
def test_without_a_good_token_trouble_passes_and_a_refusal_does_not(tokens, status, kind):
    tokens.seconds = 0.0
    provider = Tokens(oauth(tokens))
    assert provider.token() == "token-1"
    tokens.status = status
    with pytest.raises(kind, match=f"HTTP {status}") as caught:
        provider.token()
    assert SECRET not in str(caught.value)
    tokens.status = 200
    assert provider.token() == "token-3"


def test_a_token_server_that_is_down_may_come_back():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://name:{SECRET}@127.0.0.1:{closed.getsockname()[1]}/token"
    plain = url.replace(f"name:{SECRET}@", "")
    with pytest.raises(RetriableError, match=r"No token came from http://127.*ConnectionRefusedError"):
        Tokens(OAuth(plain, "etl", SECRET)).token()
    with pytest.raises(RetriableError, match="No token came from 127") as caught:
        Tokens(OAuth(url, "etl", SECRET)).token()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("raw", [True, False])
def test_a_login_waits_out_the_trouble_of_the_token_server(tokens, broker, raw):
    with_tokens = client(tokens, broker)
    endpoint = Endpoint("127.0.0.1", broker.port)

    def connect() -> None:
        if raw:
            with_tokens.open_socket(endpoint).close()
        else:
            with_tokens.run(with_tokens.dedicated(Broker(1, endpoint), Deadline(30))).close()

    with closing(with_tokens):
        tokens.status = 503
        with pytest.raises(ConnectionLost, match=r"Logging in to the broker 127\.0\.0\.1:\d+ failed: .*HTTP 503"):
            connect()
        tokens.status = 200
        connect()


def test_a_slow_token_server_holds_no_other_connection_up(tokens, broker):
    with_tokens = client(tokens, broker)
    plain = KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}), with_tokens.loop)
    endpoint = Endpoint("127.0.0.1", broker.port)
    try:
        tokens.answers.clear()
        login = with_tokens.loop.spawn(with_tokens.dedicated(Broker(1, endpoint), Deadline(30)))
        assert plain.run(plain.metadata((), Deadline(30)), 60).cluster_id == "fake"
        assert not login.done()
        tokens.answers.set()
        login.result(60).close()
    finally:
        plain.close()
        with_tokens.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_secret_is_not_sent_to_where_a_redirect_leads(tokens, status):
    with closing(TokenServer()) as elsewhere:
        tokens.status, tokens.moved_to = status, elsewhere.url
        with pytest.raises(AuthenticationError, match=f"HTTP {status}, a redirect.*token.endpoint.url") as refused:
            Tokens(oauth(tokens)).token()
        assert elsewhere.asked == 0
        assert SECRET not in str(refused.value)
