"""Says in words why a TLS handshake between gateway and sidecar failed, and whose certificate is wrong."""

from __future__ import annotations

import ssl

# Alerts by which the peer rejects us, and errors that come from what it sent: OpenSSL's name -> text.
_REASONS = {
    "TLSV1_ALERT_UNKNOWN_CA": "the peer's ca.crt does not have the CA of our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer rejects our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer rejects our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "our certificate is not for this use (client auth, server auth)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer demands a certificate, and we sent none",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer sent no certificate",
    "HTTP_REQUEST": "the peer speaks plain HTTP",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "RECORD_LAYER_FAILURE": "the peer does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "the peer speaks no TLS 1.3",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer speaks no TLS 1.3",
}
_OTHER_CA = {
    2,  # unable to get issuer certificate
    18,  # self-signed certificate
    19,  # self-signed certificate in certificate chain
    20,  # unable to get local issuer certificate
    21,  # unable to verify the first certificate
}


def is_tls(error: BaseException) -> bool:
    """Return whether the peers do not accept each other, rather than that no connection came about."""
    return isinstance(error, ssl.SSLError)


def reason_of(error: BaseException) -> str:
    """Return the reason of a failure as a phrase."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if getattr(error, "verify_code", 0) in _OTHER_CA:
            return f"the peer's certificate is not of a CA in our ca.crt ({error.verify_message})"
        return f"the peer's certificate is invalid: {error.verify_message}"
    name: str | None = getattr(error, "reason", None)  # only OpenSSL's own errors have it
    if isinstance(error, ssl.SSLError) and name:
        return _REASONS.get(name, name.lower().replace("_", " "))
    return str(error) or type(error).__name__
