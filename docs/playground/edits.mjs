// Edits as oomlint's JSON has them: [start, end) in code points, of texts by name.

export function applied(texts, edits) {
  const after = new Map();
  for (const name of new Set(edits.map((edit) => edit.path))) {
    const points = Array.from(texts.get(name) ?? "");
    const own = edits.filter((edit) => edit.path === name).sort((a, b) => b.start - a.start || b.end - a.end);
    for (const { start, end, replacement } of own) points.splice(start, end - start, ...replacement);
    after.set(name, points.join(""));
  }
  return after;
}

// What differs between texts, with a few lines around: {kind: "add" | "cut" | "", text}.
export function changedLines(before, after, around = 2) {
  const shown = [];
  for (const [name, text] of after) {
    shown.push({ kind: "", text: `--- ${name}` });
    const rows = aligned((before.get(name) ?? "").split("\n"), text.split("\n"));
    const near = new Set(rows.flatMap(({ kind }, i) => kind ? Array.from({ length: 2 * around + 1 }, (_, d) => i + d - around) : []));
    let last = -1;
    rows.forEach((row, i) => {
      if (!near.has(i)) return;
      if (last >= 0 && i > last + 1) shown.push({ kind: "", text: "…" });
      shown.push({ kind: row.kind, text: `${{ add: "+", cut: "-" }[row.kind] ?? " "} ${row.text}` });
      last = i;
    });
  }
  return shown;
}

// The lines of both, in order, by the longest common subsequence of what lies between the common ends.
function aligned(a, b) {
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
  const best = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      best[i][j] = x[i] === y[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const rows = a.slice(0, head).map((text) => ({ kind: "", text }));
  for (let i = 0, j = 0; i < x.length || j < y.length;) {
    if (i < x.length && j < y.length && x[i] === y[j]) { rows.push({ kind: "", text: x[i] }); i++; j++; }
    else if (i < x.length && (j >= y.length || best[i + 1][j] >= best[i][j + 1])) rows.push({ kind: "cut", text: x[i++] });
    else rows.push({ kind: "add", text: y[j++] });
  }
  return [...rows, ...a.slice(a.length - tail).map((text) => ({ kind: "", text }))];
}
