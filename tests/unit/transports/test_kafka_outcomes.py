"""What librdkafka's answer means for a message: the table."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from postroom.contracts.transport import Failed, Rejected, Unavailable
from postroom.transports.kafka.outcomes import away, outcome_of, stopped_by


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Rejected, "UNROUTABLE"),
        (KafkaError._UNKNOWN_TOPIC, Rejected, "UNROUTABLE"),
        (KafkaError.TOPIC_EXCEPTION, Rejected, "UNROUTABLE"),
        (KafkaError.MSG_SIZE_TOO_LARGE, Rejected, "PAYLOAD_TOO_LARGE"),
        (KafkaError.INVALID_RECORD, Rejected, "INVALID_RECORD"),
        (KafkaError.POLICY_VIOLATION, Rejected, "POLICY_VIOLATION"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Failed, "NOT_AUTHORIZED"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Unavailable, "NOT_AUTHORIZED"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Unavailable, "NOT_AUTHORIZED"),
    ],
)
def test_what_certainly_did_not_arrive(code: int, kind: type[Failed | Rejected | Unavailable], name: str) -> None:
    outcome = outcome_of(KafkaError(code), "orders", of_the_url=False)
    assert isinstance(outcome, kind)
    assert (outcome.code, getattr(outcome, "unknown", False)) == (name, False)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (KafkaError._PURGE_QUEUE, "TIMEOUT"),
        (KafkaError._PURGE_INFLIGHT, "TIMEOUT"),
        (KafkaError._MSG_TIMED_OUT, "TIMEOUT"),
        (KafkaError._TRANSPORT, "TRANSPORT"),
        (KafkaError.REQUEST_TIMED_OUT, "REQUEST_TIMED_OUT"),
        (KafkaError.UNKNOWN, "UNKNOWN"),
    ],
)
def test_what_may_have_arrived_is_a_failure_with_unknown_effect(code: int, name: str) -> None:
    outcome = outcome_of(KafkaError(code), "orders", of_the_url=True)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.unknown) == (name, True)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (KafkaError.NOT_ENOUGH_REPLICAS, "NOT_ENOUGH_REPLICAS"),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        (KafkaError.LEADER_NOT_AVAILABLE, "LEADER_NOT_AVAILABLE"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, "NOT_LEADER_FOR_PARTITION"),
        (KafkaError.KAFKA_STORAGE_ERROR, "KAFKA_STORAGE_ERROR"),
    ],
)
def test_what_the_cluster_says_of_itself_is_no_messages_fault(code: int, name: str) -> None:
    outcome = outcome_of(KafkaError(code), "orders", of_the_url=False)
    assert isinstance(outcome, Unavailable)
    assert outcome.code == name


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_trouble_with_the_topic_of_the_url_is_the_routes_and_no_message_pays_for_it(code: int) -> None:
    assert isinstance(outcome_of(KafkaError(code), "orders", of_the_url=True), Unavailable)


def test_of_what_went_wrong_the_cause_is_told() -> None:
    refused, secret = (
        KafkaError(KafkaError._TRANSPORT, "refused"),
        KafkaError(KafkaError._AUTHENTICATION, "bad password"),
    )
    assert away([secret, refused], "kafka://one") == Unavailable("AUTHENTICATION_FAILED", "bad password")
    assert away([refused], "kafka://one") == Unavailable("CONNECT_FAILED", "refused")
    assert away([], "kafka://one") == Unavailable("CONNECT_FAILED", "no answer from kafka://one")


def test_what_was_in_a_producer_that_stopped_may_have_arrived() -> None:
    stopped = stopped_by(KafkaError(KafkaError._GAPLESS_GUARANTEE, "a gap"))
    assert isinstance(stopped, Failed)
    assert stopped.unknown
    assert isinstance(stopped_by(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)), Unavailable)
