"""``oomlint estimate --html``: the prediction as one self-contained page.

The charts are rows of a table, so that whoever cannot see a bar reads the number beside it.
The page loads nothing: its own policy forbids it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from msgspec import Struct

from oomlint import __version__
from oomlint.hardware import usable_bytes
from oomlint.judgement import Forecast, Judgement
from oomlint.judgement.words import (
    PHASE_WORDS,
    conclusion,
    meaning,
    other_reading,
    verdict_words,
    without_prediction,
)
from oomlint.memory import Assumption, DeviceEstimate, HostEstimate
from oomlint.report.estimates import NEVER, fits_on, in_gib, reserved_words
from oomlint.wording.amounts import gib

# A limit further off than this many times what is needed would squeeze the bars to nothing.
_FAR = 2.5
# Room at the right of the longest bar or of the limit.
_HEADROOM = 1.04


def render(judged: Sequence[Judgement]) -> str:
    """A whole HTML document for these runs."""
    title = judged[0].name if len(judged) == 1 else f"{len(judged)} training runs"
    body = "\n".join(_run(judgement, number) for number, judgement in enumerate(judged, 1))
    return _PAGE.format(
        title=escape(f"Memory of {title}"),
        style=_STYLE,
        contents=_contents(judged) if len(judged) > 1 else "",
        body=body,
        version=escape(__version__),
    )


def _contents(judged: Sequence[Judgement]) -> str:
    items = "".join(
        f'<li><a href="#run-{number}">{escape(each.name)}</a> {_badge(each.spoken)}</li>'
        for number, each in enumerate(judged, 1)
    )
    return f"<nav aria-label=Runs><ul>{items}</ul></nav>"


def _badge(forecast: Forecast) -> str:
    return f'<span class="badge {forecast.outcome}">{verdict_words(forecast)}</span>'


def _run(judgement: Judgement, number: int) -> str:
    return f'<article id="run-{number}">\n' + "\n".join(_parts(judgement)) + "\n</article>"


def _parts(judgement: Judgement) -> Iterator[str]:
    forecast = judgement.spoken
    framework = f" <small>{escape(forecast.framework)}</small>" if forecast.framework else ""
    yield f"<h1>{escape(forecast.name)}{framework} {_badge(forecast)}</h1>"
    others = [path for path in forecast.files if path != forecast.name]
    if others:
        yield f"<p>with {', '.join(f'<code>{escape(path)}</code>' for path in others)}</p>"
    if forecast.because:
        yield f"<p>{escape(meaning(forecast))}, as all numbers below.</p>"
        yield f"<p>{escape(other_reading(judgement))}</p>"
    gpu, host = forecast.bounded.estimate.gpu, forecast.bounded.estimate.host
    if gpu.peak_bytes is None:
        said = without_prediction(forecast)
        yield f"<p><strong>{escape(said[:1].upper() + said[1:])}</strong></p>"
        return
    hardware = forecast.hardware
    yield f'<p class="conclusion">{escape(conclusion(forecast))}</p>'
    if hardware is not None:
        yield f'<p class="quiet">Memory of the card: {escape(hardware.source)}</p>'
    limit = usable_bytes(hardware.gpu) if hardware else None
    seen = forecast.first_seen
    yield _device("Per GPU", gpu, limit, seen, reserved=reserved_words(gpu))
    if host.peak_bytes is not None:
        yield _device("Per host", host, forecast.host_limit, seen)
    yield "<h2>Disk and cards</h2>\n<dl>"
    disk = forecast.estimate.disk_checkpoint_bytes
    if disk is not None:
        yield f"<dt>On disk</dt><dd>{gib(disk)} for each checkpoint</dd>"
    yield f"<dt>Fits on</dt><dd>{escape(fits_on(forecast))}</dd>\n</dl>"
    if forecast.assumptions:
        yield _assumptions(forecast.assumptions)


class _Scale(Struct, frozen=True):
    """Bytes to per cent of a chart's width."""

    top: float

    def __call__(self, size: float) -> str:
        return f"{100 * min(size, self.top) / self.top:.2f}%"


def _device(
    title: str,
    device: DeviceEstimate | HostEstimate,
    limit: int | None,
    seen: Mapping[str, str | None],
    *,
    reserved: str | None = None,
) -> str:
    peak, told = device.peak_bytes, device.told
    most = max(peak or 0, told.high if told is not None else 0, 1)
    far = limit is not None and limit > _FAR * most
    scale = _Scale(_HEADROOM * (most if limit is None or far else max(most, limit)))
    bounds = f" (between {gib(told.low)} and {gib(told.high)})" if told is not None else ""
    rows = "\n".join(
        _phase(phase, size, device, limit, seen[phase], scale)
        for phase, size in device.phases.items()
    )
    style, line = "", ""
    if limit is not None and far:
        line = _LIMIT.format(style="", text=f"limit {gib(limit)}, far beyond the right edge")
    elif limit is not None:
        style = f' style="--limit:{scale(limit)}"'
        # The words stand on that side of the line where there is room for them.
        side = "right:calc(100% - var(--limit))" if limit > scale.top / 2 else "left:var(--limit)"
        line = _LIMIT.format(style=f' class="at" style="{side}"', text=f"limit {gib(limit)}")
    rest = ""
    if reserved is not None:
        rest = f"<p>{reserved}.</p>"
    against = f" against the limit of {gib(limit)}" if limit is not None else ""
    return f"""<section>
<h2>{title}: {gib(peak)} at the peak<small>{bounds}</small></h2>
<table class="charted{" limited" if style else ""}"{style}>
<caption>What is alive at the highest instant of each phase{against}, and when a run first gets
there. The line under the peak shows how little and how much it may really be.</caption>
<thead><tr><th scope="col">phase</th><th scope="col">needs</th><th scope="col">first seen</th></tr></thead>
<tbody>
{rows}
{line}
</tbody>
</table>
{_components(device)}
{rest}
</section>"""


_LIMIT = (
    '<tr class="scale" aria-hidden="true"><td></td><td></td>'
    "<td><div><span{style}>{text}</span></div></td></tr>"
)


def _phase(
    phase: str,
    size: int | None,
    device: DeviceEstimate | HostEstimate,
    limit: int | None,
    seen: str | None,
    scale: _Scale,
) -> str:
    is_peak = phase == device.peak_phase
    over = limit is not None and (size or 0) > limit
    words = gib(size) if size is not None else "unknown"
    notes = " ← peak" if is_peak else ""
    if over:
        notes += f' <span class="does_not_fit">{gib((size or 0) - (limit or 0))} too much</span>'
    bar = _stack(device.by_phase[phase], scale)
    if is_peak and device.told is not None:
        start, end = scale(device.told.low), scale(device.told.high)
        bar += f'<i class="range" style="left:{start};width:calc({end} - {start})"></i>'
    row = ' class="peak"' if is_peak else ""
    return (
        f"<tr{row}>"
        f'<th scope="row">{escape(PHASE_WORDS.get(phase, phase))}</th>'
        f"<td>{words}<small>{notes}</small></td>"
        f'<td class="chart"><div aria-hidden="true">{bar}</div><small>{escape(seen or NEVER)}</small></td>'
        "</tr>"
    )


def _stack(components: Mapping[str, int | None], scale: _Scale) -> str:
    return "".join(
        f'<i class="bar c{number}" style="width:{scale(size)}" title="{_words(name)} {gib(size)}"></i>'
        for number, (name, size) in enumerate(components.items())
        if size
    )


def _components(device: DeviceEstimate | HostEstimate) -> str:
    """A row per component, a column per phase; the columns add up."""
    heads = "".join(
        f'<th scope="col"{_of_peak(device, phase)}>{escape(PHASE_WORDS.get(phase, phase))}</th>'
        for phase in device.phases
    )
    rows = "\n".join(
        f'<tr><th scope="row"><i class="swatch c{number}"></i>{_words(name)}</th>'
        + _cells(device, {phase: parts[name] or 0 for phase, parts in device.by_phase.items()})
        for number, name in enumerate(device.components)
        if any(parts[name] for parts in device.by_phase.values())
    )
    total = _cells(device, {phase: size or 0 for phase, size in device.phases.items()})
    return f"""<div class="wide"><table class="components">
<caption>By component, in GiB</caption>
<thead><tr><th></th>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
<tfoot><tr><th scope="row">total</th>{total}</tfoot>
</table></div>"""


def _cells(device: DeviceEstimate | HostEstimate, sizes: Mapping[str, int]) -> str:
    cells = "".join(
        f"<td{_of_peak(device, phase)}>{escape(in_gib(size))}</td>" for phase, size in sizes.items()
    )
    return cells + "</tr>"


def _of_peak(device: DeviceEstimate | HostEstimate, phase: str) -> str:
    return ' class="at-peak"' if phase == device.peak_phase else ""


def _words(name: str) -> str:
    return escape(name.replace("_", " "))


def _assumptions(assumptions: tuple[Assumption, ...]) -> str:
    items = "\n".join(
        f"<tr><th scope=row><code>{escape(a.field)}</code></th>"
        f"<td><code>{escape(str(a.value))}</code></td><td>{escape(a.why)}</td></tr>"
        for a in assumptions
    )
    return f"""<section>
<h2>Assumed</h2>
<table class="assumed">
<caption>What the files leave open and the prediction had to choose.</caption>
<thead><tr><th scope="col">setting</th><th scope="col">taken as</th><th scope="col">why</th></tr></thead>
<tbody>
{items}
</tbody>
</table>
</section>"""


# Components have the colours of Okabe and Ito, which people of every colour vision tell apart
# (https://jfly.uni-koeln.de/color), but a darker yellow and a grey in place of black, which
# would be lost on a light or a dark ground.
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --quiet: #5b6470; --paper: #ffffff;
  --card: #f6f7f9; --line: #d5d9e0; --good: #0b6b3a; --tight: #855300;
  --bad: #b3201d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --quiet: #9ba6b3; --paper: #14171b;
  --card: #1d2126; --line: #3a424d; --good: #57c98a; --tight: #e8b04a;
  --bad: #ff7d76; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
small { font-size: .8em; font-weight: normal; color: var(--quiet); }
p { margin: .25rem 0 .75rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); font-size: .85em; }
article + article { margin-top: 3rem; padding-top: 2rem; border-top: 2px solid var(--line); }
section { margin: 1.25rem 0; padding: 1rem 1.25rem; border-radius: .5rem; background: var(--card); }
nav ul { padding-left: 1.25rem; }
.badge { display: inline-block; padding: 0 .6em; border: 1px solid; border-radius: 1em;
  font-size: .9rem; font-weight: 600; vertical-align: middle; white-space: nowrap; }
.fits { color: var(--good); } .tight { color: var(--tight); } .does_not_fit, .ends { color: var(--bad); }
.unknown { color: var(--quiet); }
.conclusion { font-weight: 600; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--quiet); font-size: .85rem; padding-bottom: .4rem; }
th { text-align: left; font-weight: normal; white-space: nowrap; }
thead th { color: var(--quiet); font-size: .8rem; }
th, td { padding: .2rem .9rem .2rem 0; vertical-align: middle; }
td { font-variant-numeric: tabular-nums; }
.charted { table-layout: fixed; }
.charted thead th:first-child { width: 8.5rem; } .charted thead th:nth-child(2) { width: 10.5rem; }
.charted td:last-child { padding-right: 0; }
.charted small { display: block; }
.charted .peak th, .charted .peak td { font-weight: 600; }
.chart div { position: relative; display: flex; height: 1.3rem; align-items: center; }
.bar { height: 1.1rem; box-shadow: inset -1px 0 var(--card); }
.range { position: absolute; bottom: -.1rem; height: .2rem; border-radius: .1rem;
  background: var(--quiet); }
.limited .chart div::after { content: ""; position: absolute; left: var(--limit); top: -.3rem;
  bottom: -.3rem; border-left: 2px dashed var(--bad); }
.scale div { position: relative; height: 1.4rem; }
.scale span { color: var(--bad); font-size: .85rem; white-space: nowrap; }
.scale .at { position: absolute; }
.components, .assumed { margin-top: 1rem; }
.wide { overflow-x: auto; }
.components td, .components thead th { text-align: right; }
.components .at-peak { font-weight: 600; background: var(--paper); }
.components tfoot th, .components tfoot td { border-top: 1px solid var(--line); }
.assumed td, .assumed th { vertical-align: top; }
.swatch { display: inline-block; width: .8rem; height: .8rem; margin-right: .5rem;
  border-radius: 2px; vertical-align: -1px; }
.c0 { background: #0072b2; } .c1 { background: #e69f00; } .c2 { background: #009e73; }
.c3 { background: #d55e00; } .c4 { background: #cc79a7; } .c5 { background: #56b4e9; }
.c6 { background: #b8a800; } .c7 { background: #7d7d86; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; margin: 0; }
dt { color: var(--quiet); } dd { margin: 0; }
footer { margin-top: 2rem; color: var(--quiet); font-size: .85rem; }
@media (max-width: 40rem) { .charted thead { display: none; }
  .charted, .charted tbody { display: block; }
  .charted tr { display: flex; flex-wrap: wrap; justify-content: space-between; }
  .charted td:nth-child(2) { padding-right: 0; text-align: right; }
  .charted td:last-child { flex: 0 0 100%; }
  .charted caption { display: block; } }
@media print { section { background: none; border: 1px solid var(--line); }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{contents}
<main>
{body}
</main>
<footer>Predicted by oomlint {version} from the files alone, without running anything. GiB are 2<sup>30</sup> bytes.</footer>
</body>
</html>
"""
