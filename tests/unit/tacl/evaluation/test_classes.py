"""Numbers of classes, against their definitions counted by hand."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tacl.evaluation.classes import accuracies, confusion, f1_scores
from tacl.evaluation.metrics import accuracy

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(rows)
def test_each_class_by_counting(pairs: list[tuple[int, int]]) -> None:
    labels_N = torch.tensor([label for label, _ in pairs])
    logits_NC = torch.nn.functional.one_hot(torch.tensor([said for _, said in pairs]), 4).float()
    counted = logits_NC.argmax(-1), labels_N, 4
    found_CC, shares, scores = confusion(*counted), accuracies(*counted), f1_scores(*counted)
    for one in range(4):
        assert found_CC[one].tolist() == [pairs.count((one, other)) for other in range(4)]
        mine, said = ([pair[i] for pair in pairs].count(one) for i in (0, 1))
        right = pairs.count((one, one))
        assert shares[one] == (right / mine if mine else None)
        precision, recall = right / said if said else 0.0, right / mine if mine else 0.0
        if not mine and not said:
            assert scores[one] is None
        elif not right:
            assert scores[one] == 0
        else:
            score = scores[one]
            assert score is not None
            assert abs(score - 2 * precision * recall / (precision + recall)) < 1e-12
    right = found_CC.diagonal().sum().item() / len(pairs)
    assert abs(right - accuracy(logits_NC, labels_N)) < 1e-12
