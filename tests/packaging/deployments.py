"""What the files in deploy/ say: each relay that they start, in one shape."""

from __future__ import annotations

import json
import re
from configparser import RawConfigParser
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import yaml  # type: ignore[import-untyped]
from tests.packaging.conftest import ROOT

from postroom.durations import parse_duration

DEPLOY = ROOT / "deploy"
PORT = "8081"
"""The health port of them all."""
CONTINUED = re.compile(r"\\\n\s*")


@dataclass(frozen=True, slots=True)
class Start:
    """A command of Postroom's that one of the files starts."""

    where: str
    arguments: list[str]
    env: dict[str, str]
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Secret files that it reads: mode and text."""
    grace: timedelta | None = None
    """From SIGTERM to SIGKILL."""
    live: str | None = None
    """What is asked whether it lives."""
    ready: str | None = None

    def __str__(self) -> str:
        return f"{self.where} {self.arguments[0]}"


def text(name: str) -> str:
    return (DEPLOY / name).read_text()


def dockerfile() -> list[tuple[str, str]]:
    """Its instructions, in order: RUN, what is run."""
    lines = [line for line in text("Dockerfile").splitlines() if not line.startswith("#")]
    whole = CONTINUED.sub(" ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in whole.splitlines() if line)]


def image() -> dict[str, str]:
    """The instructions of the image itself, by their word; of several, the last."""
    found = dockerfile()
    last = max(place for place, (word, _) in enumerate(found) if word == "FROM")
    return dict(found[last:])


def image_env() -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in image()["ENV"].split())}


def compose() -> dict[str, Any]:
    """As `docker compose` reads it where no variable is set."""
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text("compose.yaml"))
    return dict(yaml.safe_load(filled))


def kubernetes(kind: str) -> dict[str, Any]:
    (found,) = (each for each in yaml.safe_load_all(text("kubernetes.yaml")) if each["kind"] == kind)
    return dict(found)


def unit() -> RawConfigParser:
    found = RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(text("postroom-relay@.service"))
    return found


def starts() -> list[Start]:
    """Every command of Postroom's that the files start."""
    return [_in_docker(), *_in_compose(), _in_systemd(), *_in_kubernetes()]


def relays() -> list[Start]:
    """The relays that are run as they stand there. The image's own has no store: it is asked for."""
    return [start for start in starts() if start.arguments[0] == "relay" and start.where != "Dockerfile"]


def _in_docker() -> Start:
    found = image()
    asked = json.loads(found["HEALTHCHECK"].partition(" CMD ")[2])
    return Start("Dockerfile", json.loads(found["CMD"]), image_env(), live=address_in(asked))


def _in_compose() -> list[Start]:
    services = compose()["services"]
    return [_service(name, each) for name, each in services.items() if each["image"] == "postroom"]


def _service(name: str, service: dict[str, Any]) -> Start:
    grace = service.get("stop_grace_period")
    asked = service["healthcheck"].get("test")
    return Start(
        f"compose.yaml {name}",
        service["command"],
        image_env() | service["environment"],
        grace=parse_duration(grace) if grace else None,
        live=address_in(asked) if asked else None,
    )


def address_in(check: list[str]) -> str:
    """The URL that a health check asks."""
    (found,) = re.findall(r"http://[^'\"\s]+", " ".join(check))
    return str(found)


def _in_systemd() -> Start:
    service = unit()["Service"]
    _, *arguments = service["ExecStart"].split()
    env = dict(line.split("=", 1) for line in text("orders.env").splitlines() if not line.startswith("#"))
    asked = f"http://{env['POSTROOM_HEALTH']}"
    grace = timedelta(seconds=int(service["TimeoutStopSec"]))
    return Start("systemd", arguments, env, grace=grace, live=f"{asked}/livez", ready=f"{asked}/readyz")


def _in_kubernetes() -> list[Start]:
    return [_pod(kind, kubernetes(kind)["spec"]["template"]["spec"]) for kind in ("Job", "Deployment")]


def _pod(kind: str, pod: dict[str, Any]) -> Start:
    (container,) = pod["containers"]
    grace = pod.get("terminationGracePeriodSeconds")
    return Start(
        f"kubernetes.yaml {kind}",
        container["args"],
        image_env() | {each["name"]: each["value"] for each in container["env"]},
        files=dict(_secret_files(pod)),
        grace=timedelta(seconds=grace) if grace else None,
        live=_probed(container, "livenessProbe"),
        ready=_probed(container, "readinessProbe"),
    )


def _probed(container: dict[str, Any], probe: str) -> str | None:
    if probe not in container:
        return None
    asked = container[probe]["httpGet"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    return f"http://127.0.0.1:{ports[asked['port']]}{asked['path']}"


def _secret_files(pod: dict[str, Any]) -> list[tuple[str, tuple[int, str]]]:
    """What the Secret's volume puts where, as the kubelet does it."""
    secret = kubernetes("Secret")
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    mode = volume["secret"]["defaultMode"]
    return [(f"{mount['mountPath']}/{key}", (mode, value)) for key, value in secret["stringData"].items()]
