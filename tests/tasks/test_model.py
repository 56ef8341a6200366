"""The model learns from its examples, and each request gets its urgency once, in order, through crashes."""

import pytest

from grete.testing import Kit
from tasks.model import EXAMPLES, job, judge, requests, urgency


def test_the_model_has_learnt_its_examples_and_judges_others() -> None:
    """Texts that it has not seen are judged by their words; of one without a known word it knows nothing."""
    assert judge(list(EXAMPLES)) == pytest.approx(list(EXAMPLES.values()), abs=0.05)
    down, thanks, unknown = judge(["Nobody can see the site", "thank you for the invoice", "xyzzy"])
    assert down > 0.9
    assert thanks < 0.1
    assert unknown == 0.5


@pytest.mark.parametrize("crashes", [0, 5])
def test_each_request_is_judged_once_and_in_order(crashes: int) -> None:
    """One hundred requests; what the job sends is what the model makes of each."""
    kit = Kit(job)
    texts = [f"{text} {number}" for number, text in enumerate([*EXAMPLES] * 13)]
    for number, text in enumerate(texts):
        kit.feed(requests, f"request {number}", text)
    kit.run(crashes=crashes, seed=1)
    assert kit.pairs(urgency) == [(f"request {n}", found) for n, found in enumerate(judge(texts))]
