"""Diagnosis of failed TLS connections: a handshake says more than librdkafka's "verify failed" or "disconnected".

Tried only once a connection has failed. Nothing is sent after the handshake.
"""

import socket
import ssl
from collections.abc import Mapping

OptionValue = str | int | float | bool
ClientOptions = Mapping[str, OptionValue]  # of librdkafka, by name
ClientConfig = dict[str, OptionValue]

ANSWER_S_MAX = 3.0  # a broker that does not begin TLS by then will not
_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's verification codes
_OTHER_NAMES = {62, 64}


def protocol(config: ClientOptions) -> str:
    """Return the option security.protocol, lower case."""
    return str(config.get("security.protocol", "plaintext")).lower()


def _text(config: ClientOptions, name: str) -> str | None:
    return str(config[name]) if name in config else None


def diagnosis(bootstrap: str, config: ClientOptions) -> str:
    """Return the mismatch of the options with the first broker that takes a connection; "" if none is seen."""
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ANSWER_S_MAX) as raw:
                return _shake_hands(raw, host.strip("[]"), config)
        except (OSError, ValueError):
            continue  # the next one; librdkafka says itself that no broker listens
    return ""


def _shake_hands(raw: socket.socket, host: str, config: ClientOptions) -> str:
    secure = "ssl" in protocol(config)
    trust = "ssl.ca.location" if "ssl.ca.location" in config else "ssl.ca.pem"
    try:
        context = ssl.create_default_context(
            cafile=_text(config, "ssl.ca.location"), cadata=_text(config, "ssl.ca.pem")
        )
        context.wrap_socket(raw, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        if not secure:
            return _ENCRYPTED
        if error.verify_code in (_EXPIRED, _NOT_YET):
            return f"the broker's certificate is out of date ({error.verify_message}): renew it, and check the clocks"
        if error.verify_code in _OTHER_NAMES:
            return (
                f"the broker's certificate is for another name ({error.verify_message}): use a name that it has in "
                "--log kafka://… and in the broker's advertised.listeners"
            )
        return (
            f"the broker's certificate is not trusted ({error.verify_message}): set ssl.ca.location to the file of "
            f"the authority that signed it{f' (set now: {trust})' if trust in config else ''}"
        )
    except (ssl.SSLError, ConnectionError, TimeoutError) as error:
        if secure and isinstance(error, ssl.SSLError | ConnectionError):
            return (
                "the broker does not speak TLS at this port, or wants a certificate of ours: check security.protocol, "
                "the port, and ssl.keystore.location or ssl.certificate.location"
            )
        return ""
    return "" if secure else _ENCRYPTED


_ENCRYPTED = "the broker speaks TLS at this port: set security.protocol to SSL or SASL_SSL"
