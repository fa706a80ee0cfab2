// tree-sitter in JavaScript's build: the syntax tree of a shell script, as JSON of columns (shell_syntax.py reads them).

// A parser, with the module web-tree-sitter and its two files given by their addresses.
export async function shellParser({ Parser, Language }, runtime, grammar) {
  await Parser.init({ locateFile: () => runtime });
  const parser = new Parser();
  parser.setLanguage(await Language.load(grammar));
  return (text) => JSON.stringify(columns(parser, text));
}

function columns(parser, text) {
  const tree = parser.parse(text), cursor = tree.walk(), known = new Map();
  const rows = { names: [], types: [], fields: [], named: [], faults: [], parents: [], starts: [], ends: [], startRows: [], endRows: [] };
  const above = [-1];
  for (;;) {
    const at = rows.types.length, type = cursor.nodeType;
    if (!known.has(type)) known.set(type, rows.names.push(type) - 1);
    rows.types.push(known.get(type));
    rows.fields.push(cursor.currentFieldName);
    rows.named.push(cursor.nodeIsNamed ? 1 : 0);
    rows.faults.push(type === "ERROR" || cursor.nodeIsMissing ? 1 : 0);
    rows.parents.push(above.at(-1));
    rows.starts.push(cursor.startIndex);
    rows.ends.push(cursor.endIndex);
    rows.startRows.push(cursor.startPosition.row);
    rows.endRows.push(cursor.endPosition.row);
    if (cursor.gotoFirstChild()) { above.push(at); continue; }
    while (!cursor.gotoNextSibling()) {
      if (!cursor.gotoParent()) { cursor.delete(); tree.delete(); return rows; }
      above.pop();
    }
  }
}
