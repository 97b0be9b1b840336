"""Kerberos logins with a keytab or as a named principal, for kafka-python's GSSAPI mechanism, which has neither.

MIT's library gets the ticket from the KDC when a connection needs one, and another one before the first has expired. No
kinit and no ticket cache on disk are needed.
"""

from __future__ import annotations

import importlib
from typing import Any

# As for OAUTHBEARER: the mechanisms are the public way to log in with kafka-python.
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

KEYTAB = "sasl_kerberos_keytab"
PRINCIPAL = "sasl_kerberos_principal"


class KerberosLogin(SaslMechanismGSSAPI):  # type: ignore[misc]
    """GSSAPI with credentials of its own in place of those of the process.

    Args:
        config: The arguments of a kafka-python mechanism, with `KEYTAB`, `PRINCIPAL` or both.

    Raises:
        gssapi.exceptions.GSSError: The KDC refuses the principal, or the keytab has no key of it.
    """

    def __init__(self, **config: Any) -> None:
        gssapi = importlib.import_module("gssapi")
        credentials = _credentials(gssapi, str(config.get(KEYTAB) or ""), str(config.get(PRINCIPAL) or ""))
        self.auth_id = f"{config['sasl_kerberos_service_name']}@{config['host']}"
        service = gssapi.Name(self.auth_id, name_type=gssapi.NameType.hostbased_service)
        self.gssapi_name = service.canonicalize(gssapi.MechType.kerberos)
        self._client_ctx = gssapi.SecurityContext(name=self.gssapi_name, creds=credentials, usage="initiate")
        self._is_done = self._is_authenticated = False
        self._next_token = self._client_ctx.step(None)


def _credentials(gssapi: Any, keytab: str, principal: str) -> Any:
    name = gssapi.Name(principal, name_type=gssapi.NameType.kerberos_principal) if principal else None
    # A cache in memory has a name, so that all connections of the process with this login share its ticket.
    store = {"client_keytab": keytab, "ccache": f"MEMORY:kafkagroup-{principal}-{keytab}"} if keytab else None
    return gssapi.Credentials(name=name, usage="initiate", store=store)
