"""What `bench/mirror --plane bmv2` is compared with: the same routes from a client that does nothing but send them.

The routes are read back from the measured switch, encoded as INSERTs before the clock starts, and written to a fresh
BMv2 that runs the same pipeline. BMv2 does not look at what a route refers to, so routes are all that is written.
"""

import queue
import time
from collections.abc import Iterator

import grpc
from finsy.proto import p4r

from lab.network import NetworkError
from lab.planes.bmv2 import enclosed
from lab.processes import prefer

_SERVICE = "/p4.v1.P4Runtime/"
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_UPDATES = 500  # in a request
_UNDER_WAY = 2  # requests
_PLACE = 50  # its TCP ports lie that far behind those of the measured switch
_ANSWER_S = 120.0


class Device:
    """A client of one P4Runtime device, and its primary where it is told to be.

    ``since_ms`` makes the upper half of its election id: who came before has a smaller one.
    """

    def __init__(self, address: str, device_id: int, since_ms: int = 0) -> None:
        self.device_id = device_id
        self._election_id = p4r.Uint128(high=since_ms, low=1)
        self._channel = grpc.insecure_channel(address, _OPTIONS)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()

    def close(self) -> None:
        """End the connection."""
        self._requests.put(None)
        self._channel.close()

    def become_primary(self) -> None:
        """Open the stream and wait for the device's word."""
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.election_id.CopyFrom(self._election_id)
        self._requests.put(request)
        open_stream = self._channel.stream_stream(
            f"{_SERVICE}StreamChannel",
            request_serializer=p4r.StreamMessageRequest.SerializeToString,
            response_deserializer=p4r.StreamMessageResponse.FromString,
        )
        self._stream = open_stream(iter(self._requests.get, None))  # kept: without a holder it ends
        answer = next(iter(self._stream))
        if answer.arbitration.status.code:
            raise NetworkError(f"the device makes us no primary: {answer.arbitration.status.message}")

    def pipeline(self) -> p4r.ForwardingPipelineConfig:
        """Return the pipeline that the device runs."""
        ask = self._channel.unary_unary(
            f"{_SERVICE}GetForwardingPipelineConfig",
            request_serializer=p4r.GetForwardingPipelineConfigRequest.SerializeToString,
            response_deserializer=p4r.GetForwardingPipelineConfigResponse.FromString,
        )
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id)
        answer: p4r.GetForwardingPipelineConfigResponse = ask(request, timeout=_ANSWER_S)
        return answer.config

    def push(self, pipeline: p4r.ForwardingPipelineConfig) -> None:
        """Have the device run a pipeline."""
        request = p4r.SetForwardingPipelineConfigRequest(device_id=self.device_id, config=pipeline)
        request.action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.election_id.CopyFrom(self._election_id)
        push = self._channel.unary_unary(f"{_SERVICE}SetForwardingPipelineConfig", None, None)
        push(request.SerializeToString(), timeout=_ANSWER_S)

    def entries(self, table_id: int) -> Iterator[p4r.TableEntry]:
        """Walk over the entries of a table."""
        request = p4r.ReadRequest(device_id=self.device_id)
        request.entities.add().table_entry.table_id = table_id
        read = self._channel.unary_stream(
            f"{_SERVICE}Read",
            request_serializer=p4r.ReadRequest.SerializeToString,
            response_deserializer=p4r.ReadResponse.FromString,
        )
        for answer in read(request, timeout=_ANSWER_S):
            for entity in answer.entities:
                yield entity.table_entry

    def encoded(self, entries: list[p4r.TableEntry]) -> list[bytes]:
        """Return requests that insert entries."""
        found = []
        for start in range(0, len(entries), _UPDATES):
            request = p4r.WriteRequest(device_id=self.device_id, election_id=self._election_id)
            for entry in entries[start : start + _UPDATES]:
                update = request.updates.add(type=p4r.Update.INSERT)
                update.entity.table_entry.CopyFrom(entry)
            found.append(request.SerializeToString())
        return found

    def update(self, kind: "p4r.Update.Type.ValueType", entities: list[p4r.Entity]) -> None:
        """Insert, modify or delete entities in one request. NetworkError where the device takes not all of them."""
        request = p4r.WriteRequest(device_id=self.device_id, election_id=self._election_id)
        for entity in entities:
            request.updates.add(type=kind, entity=entity)
        try:
            self._channel.unary_unary(f"{_SERVICE}Write", None, None)(request.SerializeToString(), timeout=_ANSWER_S)
        except grpc.RpcError as error:
            said = error.details() if isinstance(error, grpc.Call) else error
            raise NetworkError(f"P4Runtime: {said}") from error

    def write(self, requests: list[bytes]) -> None:
        """Send requests, some under way at a time, and wait for all answers."""
        send = self._channel.unary_unary(f"{_SERVICE}Write", None, None)
        waiting: list[grpc.Future[bytes]] = []
        for request in requests:
            waiting.append(send.future(request, timeout=_ANSWER_S))
            if len(waiting) == _UNDER_WAY:
                waiting.pop(0).result()
        for future in waiting:
            future.result()


def write_s(address: str, device_id: int, table: str, wanted: int) -> float:
    """Return the seconds in which a fresh BMv2 takes the routes that a device holds in one table."""
    measured, fresh = Device(address, device_id), enclosed("reference", 1, _PLACE)
    try:
        pipeline = measured.pipeline()
        table_id = next(one.preamble.id for one in pipeline.p4info.tables if one.preamble.alias == table)
        entries = list(measured.entries(table_id))
        if len(entries) < wanted:
            raise NetworkError(f"{address} holds {len(entries)} routes in {table}, {wanted} are expected")
        fresh.start({})
        prefer(fresh.pid)
        return _timed(Device(fresh.address, fresh.device_id), pipeline, entries)
    except grpc.RpcError as error:
        said = error.details() if isinstance(error, grpc.Call) else error
        raise NetworkError(f"P4Runtime: {said}") from error
    finally:
        measured.close()
        fresh.stop()


def _timed(device: Device, pipeline: p4r.ForwardingPipelineConfig, entries: list[p4r.TableEntry]) -> float:
    try:
        device.become_primary()
        device.push(pipeline)
        requests = device.encoded(entries)
        start = time.monotonic()
        device.write(requests)
        return time.monotonic() - start
    finally:
        device.close()
