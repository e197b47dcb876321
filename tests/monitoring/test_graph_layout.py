"""A job's graph as boxes and lines, drawn by the page and by notebooks."""

from __future__ import annotations

from spark_ckpt.monitoring.graph import Layout, kinds_of, layout, layout_of
from spark_ckpt.monitoring.overview import overview_of
from spark_ckpt.protocol.records import Edge
from tests.monitoring.facts_harness import facts, start


def _columns(made: Layout) -> dict[str, int]:
    return {key: box.column for key, box in made.boxes.items() if box.kind != "way"}


def test_a_box_stands_right_of_all_that_its_rows_come_from_and_lines_pass_none() -> None:
    edges = (
        Edge("a", "joined", ("Filter",)),
        Edge("b", "joined"),
        Edge("joined", "sink:out"),
        Edge("sink:out", "sink:rejects", ("refused rows",)),
    )
    made = layout(kinds_of(("a", "b"), ("joined",), ("out", "rejects")), edges, {"joined": "5 keys"})
    refused = "segment:sink:out:refused rows"
    assert _columns(made) == {
        "a": 0, "b": 0, "segment:a:Filter": 1, "joined": 2, "sink:out": 3, refused: 4, "sink:rejects": 5,
    }  # fmt: skip
    assert made.boxes["joined"].figures == "5 keys"
    assert ("b", "way:b:joined:1") in made.lines
    assert made.in_column(1) == 2, "the line of b has a place of its own beside the filter"
    assert made.is_narrow(1)
    assert all(made.boxes[b].column == made.boxes[a].column + 1 for a, b in made.lines)
    assert "a to Filter" in made.words
    assert "joined to out" in made.words


def test_a_sink_may_be_called_as_an_operator_is() -> None:
    made = layout(kinds_of(("a",), ("same",), ("same",)), (Edge("a", "same"), Edge("same", "sink:same")), {})
    assert _columns(made) == {"a": 0, "same": 1, "sink:same": 2}


def test_one_segment_may_lead_to_several_sinks() -> None:
    edges = tuple(Edge("a", f"sink:{n}", ("Project",)) for n in "xy")
    made = layout(kinds_of(("a",), (), ("x", "y")), edges, {})
    assert sorted(made.lines) == [
        ("a", "segment:a:Project"), ("segment:a:Project", "sink:x"), ("segment:a:Project", "sink:y"),
    ]  # fmt: skip


def test_records_of_older_releases_have_boxes_without_lines() -> None:
    made = layout_of(overview_of(facts()))
    assert _columns(made) == {"in": 0, "totals": 1, "sink:out": 2, "sink:copy": 2}
    assert made.lines == ()
    assert "not recorded" in made.words
    assert layout_of(overview_of(facts(starts=()))).boxes == {}


def test_an_edge_to_what_is_no_part_of_the_job_is_left_out() -> None:
    gone = (Edge("in", "gone"), Edge("in", "sink:out"))
    made = layout_of(overview_of(facts(starts=(start(edges=gone),))))
    assert made.lines == (("in", "sink:out"),)
    assert "gone" not in made.boxes
