"""Where a token may not comment: the review as annotations of the job."""

from oomlint.report.github import MOST
from oomlint.review.annotations import render
from oomlint.review.forge import Comment, Review


def comment(body: str, line: int = 3) -> Comment:
    return Comment(
        path="a,b.yaml", old_path="a,b.yaml", first=line, last=line + 1, old_last=None, body=body, keys=(), digest="",
    )  # fmt: skip


HEAD = "❌ **`stage` 3 → 0 makes `a,b.yaml` need 128 of 79.1 GiB per GPU**"
BODY = "\n\n".join(
    (
        HEAD,
        "It needed 26.7 GiB before; the risk of running out of memory is 95 %.",
        "**Fix:** put `stage` back to `3`; then 26.7 GiB, and it fits.",
        '```suggestion\n    "stage": 3\n```',
        "<details><summary>Why</summary>\n\nMore.\n\n</details>",
        "<!-- oomlint:finding 00 0000000000000000 -->",
    )
)


def test_a_cause_is_one_annotation_in_plain_words():
    assert render(Review("", (comment(BODY),))) == (
        "::error file=a%2Cb.yaml,line=3,endLine=4,title=stage 3 → 0 makes a%2Cb.yaml need 128 of 79.1 GiB per GPU"
        "::It needed 26.7 GiB before; the risk of running out of memory is 95 %25."
        " Fix: put stage back to 3; then 26.7 GiB, and it fits.\n"
    )


def test_the_rest_of_a_suggestion_is_no_annotation_of_its_own():
    rest = "**Fix:** shard with ZeRO stage 3.\n\n```suggestion\nx\n```"
    assert render(Review("", (comment(BODY), comment(rest, 9)))).count("::error") == 1


def test_github_drops_no_annotation_without_a_word():
    """It keeps ten of a level; the gravest come first, and the summary has all."""
    many = tuple(comment(BODY, line) for line in range(2 * MOST))
    warning = comment(BODY.replace("❌", "⚠️"), 99)
    text = render(Review("", (*many, warning)))
    assert text.count("::error") == MOST
    assert text.count("::warning") == 1
    assert "line=0," in text
    assert f"line={2 * MOST - 1}," not in text


def test_escaped_markdown_and_names_that_would_mention_somebody_read_as_they_are():
    text = render(Review("", (comment("ℹ️ **A\\_b of @\u200bsomebody is \\*odd\\***\n\nx\\_y"),)))
    assert (
        text == "::notice file=a%2Cb.yaml,line=3,endLine=4,title=A_b of @somebody is *odd*::x_y\n"
    )
