"""The files in deploy/, read: by linters, and against what Postroom's own commands and settings are."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from tests.packaging.conftest import ROOT
from tests.packaging.deployments import (
    DEPLOY,
    PORT,
    Start,
    compose,
    dockerfile,
    image,
    kubernetes,
    relays,
    starts,
    text,
    unit,
)

from postroom import Settings
from postroom.cli.app import app
from postroom.config.load import load_settings
from postroom.transports import known_scheme

PAGE = (ROOT / "docs/how-to/deploy.md").read_text()
YAMLLINT = """
extends: default
rules: {line-length: {max: 128}, document-start: disable, comments: {min-spaces-from-content: 1}}
"""
TO_SPARE = timedelta(seconds=2)
"""What a relay needs to end beside the send that is under way."""
EXPOSED_AT_MOST = 20
"""In tenths, of ten: what systemd calls OK."""
each_start = pytest.mark.parametrize("start", starts(), ids=str)
each_relay = pytest.mark.parametrize("start", relays(), ids=str)


def tool(name: str) -> str:
    """A program beside this Python."""
    return str(Path(sys.executable).with_name(name))


def passes(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout + done.stderr


def test_hadolint_has_nothing_to_say() -> None:
    passes(tool("hadolint"), "--no-color", str(DEPLOY / "Dockerfile"))


def test_yamllint_has_nothing_to_say() -> None:
    files = [str(file) for file in DEPLOY.glob("*.yaml")]
    assert len(files) == 2
    passes(tool("yamllint"), "--strict", "-d", YAMLLINT, *files)


@pytest.fixture
def installed_unit(tmp_path: Path) -> Path:
    """The unit with a program that there is. Skips where there is no systemd."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("There is no systemd-analyze on this machine: nothing verifies the unit.")
    file = tmp_path / "postroom-relay@orders.service"
    file.write_text(text("postroom-relay@.service").replace("/opt/postroom/bin/postroom", shutil.which("true") or ""))
    return file


def test_systemd_finds_the_unit_right(installed_unit: Path) -> None:
    passes("systemd-analyze", "verify", "--man=no", str(installed_unit))


def test_systemd_finds_the_pages_change_to_the_unit_right(installed_unit: Path) -> None:
    (change,) = re.findall(r"```ini\n(.+?)```", PAGE, re.DOTALL)
    installed_unit.write_text(f"{installed_unit.read_text()}\n{change}")
    passes("systemd-analyze", "verify", "--man=no", str(installed_unit))


def test_the_page_names_every_file_there_is() -> None:
    told = set(re.findall(r"`deploy/([\w.@-]+)`", PAGE))
    of_their_own_accord = {"receiver.py", "Dockerfile.dockerignore", "__pycache__"}
    assert {file.name for file in DEPLOY.iterdir()} - of_their_own_accord == told


def test_systemd_finds_the_unit_well_shut_in(installed_unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSED_AT_MOST}", str(installed_unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if "nknown option" in done.stderr or "nrecognized option" in done.stderr:
        pytest.skip("This systemd-analyze cannot judge a unit that is not installed.")
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def parsed(arguments: list[str]) -> None:
    """Raises for a command or an option that there is not."""
    with app.make_context("postroom", list(arguments)) as context:
        name, command, rest = app.resolve_command(context, list(arguments))
        assert command is not None
        command.make_context(name, rest, parent=context)


@each_start
def test_a_command_is_one_that_there_is(start: Start) -> None:
    parsed(start.arguments)


def commands_told() -> Iterator[list[str]]:
    """The commands of Postroom's that comments and pages tell people to type."""
    for line in "\n".join([*(file.read_text() for file in DEPLOY.glob("*.*")), PAGE]).splitlines():
        if told := re.search(r"(?:run --rm tools|-- postroom) (.+)", line):
            yield shlex.split(told[1])


def test_a_command_that_people_are_told_to_type_is_one_that_there_is() -> None:
    told = list(commands_told())
    assert {words[0] for words in told} >= {"put", "status"}
    for arguments in told:
        parsed(arguments)


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed(["relay", "--helth", "8081"])


def env_of(start: Start, folder: Path) -> dict[str, str]:
    """Its variables, with its secret files where we may write."""
    env = dict(start.env)
    for place, (mode, content) in start.files.items():
        file = folder / Path(place).name
        file.write_text(content)
        file.chmod(mode)
        env = {name: str(file) if value == place else value for name, value in env.items()}
    return env


def settings(start: Start, folder: Path) -> Any:
    """What Postroom makes of its variables."""
    return load_settings(env=env_of(start, folder))


@each_start
def test_a_variable_is_a_setting(start: Start, tmp_path: Path) -> None:
    ours = {name: value for name, value in env_of(start, tmp_path).items() if name.startswith("POSTROOM_")}
    assert ours
    for name, value in ours.items():
        assert load_settings(env={name: value}) != Settings(), f"{name} says nothing to Postroom"


@each_relay
def test_a_relay_is_told_from_where_to_where(start: Start, tmp_path: Path) -> None:
    told = settings(start, tmp_path)
    assert told.store.startswith("postgresql://")
    assert known_scheme(told.to) == "kafka"


@each_relay
def test_a_relay_has_time_to_end_what_it_sends(start: Start, tmp_path: Path) -> None:
    assert start.grace is not None
    assert start.grace >= settings(start, tmp_path).relay.send_timeout + TO_SPARE


@each_relay
def test_health_is_asked_where_it_is_answered(start: Start, tmp_path: Path) -> None:
    assert start.live
    assert start.live.endswith(f":{PORT}/livez")
    assert settings(start, tmp_path).relay.health.port == int(PORT)
    assert start.ready is None or start.ready == start.live.replace("livez", "readyz")


def test_the_image_asks_itself_as_compose_does() -> None:
    assert (
        json.loads(image()["HEALTHCHECK"].partition(" CMD ")[2])
        == compose()["services"]["relay"]["healthcheck"]["test"][1:]
    )
    assert image()["EXPOSE"] == PORT


def test_the_image_is_nobody_and_gets_its_signals_itself() -> None:
    found = image()
    uid, gid = found["USER"].split(":")
    assert int(uid) == int(gid) > 0
    assert f"--uid {uid}" in found["RUN"]
    assert f"--gid {gid}" in found["RUN"]
    assert json.loads(found["ENTRYPOINT"]) == ["postroom"]
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert {rest.split()[0] for word, rest in dockerfile() if word == "FROM"} == {"python:3.13-slim-bookworm"}


def let_through(name: str) -> bool:
    """Does the .dockerignore let this file through? The last line that fits it decides."""
    kept = True
    for line in text("Dockerfile.dockerignore").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = [name, *map(str, Path(name).parents), *Path(name).parts]
        if line and not line.startswith("#") and any(fnmatch.fnmatchcase(part, pattern) for part in parts):
            kept = line.startswith("!")
    return kept


def test_what_the_image_copies_is_there_and_nothing_else_is_sent_to_the_builder() -> None:
    copied = [
        word for name, rest in dockerfile() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    for name in copied:
        assert (ROOT / name).exists()
        assert let_through(name), name
    assert let_through("src/postroom/stores/sqlite/schema.sql")
    for name in (
        ".git/config",
        "tests/conftest.py",
        "deploy/orders.env",
        ".venv/bin/python",
        "src/postroom/__pycache__/x.pyc",
    ):
        assert not let_through(name), name


def test_the_extras_that_are_installed_speak_with_what_is_named() -> None:
    (built,) = (rest for word, rest in dockerfile() if word == "ARG")
    assert {"cli", "postgres", "kafka"} <= set(built.removeprefix("EXTRAS=").split(","))
    for service in compose()["services"].values():
        if "build" in service:
            assert {"cli", "postgres", "kafka"} <= set(service["build"]["args"]["EXTRAS"].split(","))
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).samefile(
                DEPLOY / "Dockerfile"
            )


def test_what_compose_waits_for_is_there() -> None:
    services = compose()["services"]
    for service in services.values():
        for name, waited in service.get("depends_on", {}).items():
            checked = services[name].get("healthcheck", {}).get("test")
            assert waited["condition"] == ("service_healthy" if checked else "service_completed_successfully")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose()["volumes"] or (DEPLOY / source).is_file()
    assert services["relay"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget"])
def test_a_selector_finds_the_relays_and_only_them(kind: str) -> None:
    wanted = kubernetes(kind)["spec"]["selector"]["matchLabels"].items()
    assert wanted <= kubernetes("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert not wanted <= kubernetes("Job")["spec"]["template"]["metadata"]["labels"].items()


def test_a_node_can_be_emptied_and_one_relay_stays() -> None:
    assert kubernetes("PodDisruptionBudget")["spec"]["minAvailable"] < kubernetes("Deployment")["spec"]["replicas"]
    assert kubernetes("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_a_pod_is_the_images_user_and_may_do_nothing_more(kind: str) -> None:
    pod = kubernetes(kind)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert user == image()["USER"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]  # or it cannot read its Secret
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) == {"memory"}
    assert pod["volumes"][0]["secret"]["defaultMode"] & 0o007 == 0


def test_liveness_and_start_never_ask_about_the_whole_outbox() -> None:
    """A relay that is restarted because another one died makes it worse."""
    (container,) = kubernetes("Deployment")["spec"]["template"]["spec"]["containers"]
    asked = {name: each["httpGet"]["path"] for name, each in container.items() if name.endswith("Probe")}
    assert asked == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_systemd_starts_it_again_after_a_failure_but_not_after_wrong_use() -> None:
    service = unit()["Service"]
    assert service["Type"] == "exec"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["EnvironmentFile"] == "/etc/postroom/%i.env"
    env = {**os.environ, "POSTROOM_STORE": "sqlite:///x.db", "POSTROOM_TO": "nonsense://", "POSTROOM_LEASE": "forever"}
    done = subprocess.run(
        [sys.executable, "-m", "postroom", "relay"], env=env, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 2
