"""What every record store must guarantee. Inherit :class:`RecordStoreConformance` and give it a ``store`` fixture."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from spark_ckpt.errors import CorruptStorageError, NewerFormatError, StorageNotWritableError
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JOB_RECORD
from spark_ckpt.storage.record_store import Created, Exists, RecordStore

_WRITERS = 8
_ROUNDS = 20
_BODY = {"text": "ü \n", "list": [1, 2.5, None, True], "nested": {"b": 1, "a": {}}}


class RecordStoreConformance:
    """Tests of one store. The ``store`` fixture gives a fresh, empty :class:`RecordStore` for each test."""

    @pytest.fixture
    def store(self) -> RecordStore:
        raise NotImplementedError("give this class a fixture named store")

    def test_a_record_reads_back_as_it_was_written(self, store: RecordStore) -> None:
        assert isinstance(store.create("folder/a.json", "thing", _BODY), Created)
        assert store.read("folder/a.json", "thing") == _BODY

    def test_an_absent_record_reads_as_none(self, store: RecordStore) -> None:
        assert store.read("folder/a.json", "thing") is None
        assert not store.exists("folder/a.json")

    def test_the_second_creator_is_told_what_the_first_one_wrote(self, store: RecordStore) -> None:
        store.create("a.json", "thing", {"by": 1})
        assert store.create("a.json", "thing", {"by": 2}) == Exists({"by": 1})
        assert store.read("a.json", "thing") == {"by": 1}

    def test_replacing_overwrites_and_also_creates(self, store: RecordStore) -> None:
        store.replace("folder/a.json", "thing", {"n": 1})
        store.replace("folder/a.json", "thing", {"n": 2})
        assert store.read("folder/a.json", "thing") == {"n": 2}

    def test_what_need_not_be_durable_reads_back_too(self, store: RecordStore) -> None:
        store.create("a.json", "thing", {"n": 1}, durable=False)
        store.replace("b.json", "thing", {"n": 2}, durable=False)
        assert store.read("a.json", "thing") == {"n": 1}
        assert store.read("b.json", "thing") == {"n": 2}

    def test_names_are_sorted_and_of_one_folder_only(self, store: RecordStore) -> None:
        for path in ("f/b.json", "f/a.json", "f/deeper/c.json", "other/d.json"):
            store.create(path, "thing", {})
        assert store.names("f") == ["a.json", "b.json"]
        assert store.names("nothing") == []

    def test_names_show_every_record_that_a_call_before_created(self, store: RecordStore) -> None:
        for number in range(5):
            store.create(f"f/{number}.json", "thing", {})
            assert store.names("f") == [f"{n}.json" for n in range(number + 1)]

    def test_deleting_twice_is_as_good_as_once(self, store: RecordStore) -> None:
        store.create("f/a.json", "thing", {})
        store.delete("f/a.json")
        store.delete("f/a.json")
        assert not store.exists("f/a.json")
        assert store.names("f") == []
        assert isinstance(store.create("f/a.json", "thing", {"again": True}), Created)

    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda data: data[:-5], id="cut short"),
            pytest.param(lambda _: b"", id="empty"),
            pytest.param(lambda data: b"\xff\xfe" + data, id="not text"),
            pytest.param(lambda data: data.replace(b"1234", b"1235"), id="changed value"),
            pytest.param(lambda data: data.replace(b'"format":1', b'"format":99'), id="other format"),
            pytest.param(lambda _: json.dumps([1]).encode(), id="other shape"),
        ],
    )
    def test_a_damaged_record_is_named_and_nothing_is_guessed(
        self, store: RecordStore, damage: Callable[[bytes], bytes]
    ) -> None:
        store.create("f/a.json", "thing", {"n": 1234})
        folder = Folder(store.url, store.storage_options)
        folder.replace("f/a.json", damage(folder.read("f/a.json") or b""))
        with pytest.raises(CorruptStorageError, match=r"f/a\.json .*expected .*found .*restore another checkpoint"):
            store.read("f/a.json", "thing")
        with pytest.raises(CorruptStorageError):
            store.create("f/a.json", "thing", {})

    def test_a_record_of_a_newer_format_is_refused_by_its_number(self, store: RecordStore) -> None:
        store.create("a.json", "thing", {})
        folder = Folder(store.url, store.storage_options)
        newer = {"format": 99, "kind": "thing", "crc32": 0, "writer": "w", "body": {"n": 1}}
        folder.replace("a.json", json.dumps(newer).encode())
        with pytest.raises(NewerFormatError, match=r"a\.json was written by a newer version .*its format is 99"):
            store.read("a.json", "thing")

    def test_a_record_of_another_kind_is_not_taken_for_this_one(self, store: RecordStore) -> None:
        store.create("a.json", "thing", {})
        with pytest.raises(CorruptStorageError, match=r"'other'.*'thing'"):
            store.read("a.json", "other")

    def test_exactly_one_of_many_concurrent_creators_wins(self, store: RecordStore) -> None:
        start = Barrier(_WRITERS)

        def writes(writer: int) -> list[bool]:
            try:
                return create(writer)
            except Exception:
                start.abort()  # the others would wait for ever
                raise

        def create(writer: int) -> list[bool]:
            won = []
            for number in range(_ROUNDS):
                start.wait()
                answer = store.create(f"f/{number}.json", "thing", {"by": writer, "padding": "x" * 10_000})
                found = store.read(f"f/{number}.json", "thing")
                assert found is not None
                assert (found["by"] == writer) == isinstance(answer, Created)
                won.append(isinstance(answer, Created))
            return won

        with ThreadPoolExecutor(_WRITERS) as pool:
            won = list(pool.map(writes, range(_WRITERS)))
        assert [sum(wins) for wins in zip(*won, strict=True)] == [1] * _ROUNDS

    def test_readers_never_see_a_part_of_a_record(self, store: RecordStore) -> None:
        done = Event()

        def read() -> int:
            seen = 0
            while not done.is_set() or not seen:
                for name in store.names("f"):
                    body = store.read(f"f/{name}", "thing")  # raises if it is damaged
                    assert body is not None
                    assert set(body["text"]) == {str(body["n"] % 10)}
                    seen += 1
            return seen

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            try:
                for number in range(_ROUNDS):
                    store.create(f"f/{number}.json", "thing", {"n": number, "text": str(number % 10) * 20_000})
                    store.replace("f/same.json", "thing", {"n": number, "text": str(number % 10) * 20_000})
            finally:
                done.set()
            assert all(reader.result() for reader in readers)

    def test_a_folder_is_claimed_by_one_job_only(self, store: RecordStore) -> None:
        store.check_writable("orders")
        store.check_writable("orders")
        with pytest.raises(StorageNotWritableError, match=r"expected job 'payments', found 'orders'.*spark\.ckpt\.job"):
            store.check_writable("payments")
        assert store.names("") == [JOB_RECORD]
