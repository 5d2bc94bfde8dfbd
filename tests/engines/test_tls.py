"""An engine behind TLS: the certificates that the environment names serve for all of it."""

import asyncio
import datetime as dt
import ipaddress
import socket
import threading
from pathlib import Path

import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from vllm_spectool.reference import Reference, ReferenceSettings, call, scripted
from vllm_spectool.reference.server import config

from tests.engines.agents import TOKEN_S, Bench, inputs, thread

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]


def _certificate(folder: Path) -> tuple[str, str]:
    """Write a certificate that signs itself, and its key; return where they are."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "engine")])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "whole"])
async def test_posts_and_answers_over_tls(
    streaming: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request answers two model calls; awaited and by blocking."""
    certificate, key = _certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    service = Reference(
        scripted(call("weather", city="Rome"), "It is fine."),
        settings=ReferenceSettings(token_s=TOKEN_S),
    )
    options = {"ssl_certfile": certificate, "ssl_keyfile": key, "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(config(service, **options))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=asyncio.run, args=(server.serve([listening]),))
        serving.start()
        try:
            url = f"https://127.0.0.1:{listening.getsockname()[1]}"
            await _asked(Bench(service, url), streaming=streaming)
        finally:
            server.should_exit = True
            serving.join()


async def _asked(b: Bench, *, streaming: bool) -> None:
    model = b.model(streaming=streaming)
    for awaited in (True, False):
        speculation = b.speculation({0: [("weather", {"city": "Rome"})]})
        agent = b.agent(speculation, [b.read()], model=model)
        if awaited:
            state = await agent.ainvoke(inputs(), thread())
        else:
            state = await asyncio.to_thread(agent.invoke, inputs(), thread())
        assert state["messages"][-1].content == "It is fine."
        await asyncio.sleep(0.02)
        b.assert_nothing_left(speculation)
    assert b.service.requests == 2, b.engine_verdicts
    await model.root_async_client.close()
    model.root_client.close()
