/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls_words.h"

#ifdef RPS_HAVE_OPENSSL
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <stddef.h>

const char *
rps_tls_verdict_words(long verdict, enum rps_tls_side side)
{
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "the peer needs a new one, or this host's clock is wrong";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "it is valid later: is a clock wrong?";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return "it names another host: its subjectAltName must have the "
               "address as the ps list has it";
    case X509_V_ERR_INVALID_PURPOSE:
    case X509_V_ERR_INVALID_CA:
        return side == RPS_TLS_CLIENT
                       ? "it is not for a server: with an extended key usage "
                         "it needs serverAuth"
                       : "it is not for a client: with an extended key usage "
                         "it needs clientAuth";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return "the CA in our --tls-ca did not sign it: all members need "
               "certificates of the CA that the others name";
    default:
        return NULL;
    }
}

const char *
rps_tls_failure_words(unsigned long code, enum rps_tls_side side)
{
    if (ERR_GET_LIB(code) != ERR_LIB_SSL) {
        return NULL;
    }
    switch (ERR_GET_REASON(code)) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return "the peer has no certificate: it must be given --tls-cert and "
               "--tls-key";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "the server asks for a certificate: give --tls-cert and "
               "--tls-key";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        return "the peer does not know who signed our --tls-cert: its CA must "
               "stand in the peer's --tls-ca";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "our --tls-cert has expired for the peer: make a new one, or "
               "set the clocks";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        return side == RPS_TLS_CLIENT
                       ? "the server refuses our --tls-cert: is it one for a "
                         "client, of the right CA? The server's log says why"
                       : "the client refuses our --tls-cert: does it name this "
                         "address, is it of the client's CA? The client says "
                         "why";
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
        return "the peer speaks no TLS 1.3";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_LENGTH_MISMATCH:
        return side == RPS_TLS_CLIENT
                       ? "the peer speaks no TLS: start it with --tls-cert "
                         "and --tls-key, or leave --tls-ca out here"
                       : "the peer speaks no TLS: it must be given --tls-ca";
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_SSLV3_ALERT_BAD_RECORD_MAC:
        return "bytes were changed on their way";
    default:
        return NULL;
    }
}

const char *
rps_tls_file_words(unsigned long code)
{
    const int reason = ERR_GET_REASON(code);

    switch (ERR_GET_LIB(code)) {
    case ERR_LIB_PEM:
        return reason == PEM_R_NO_START_LINE
                       ? "there is nothing in PEM form in it (-----BEGIN ...)"
                       : NULL;
    case ERR_LIB_X509:
        return reason == X509_R_KEY_VALUES_MISMATCH
                       ? "it is the key of another certificate"
                       : NULL;
    default:
        return NULL;
    }
}

#endif
