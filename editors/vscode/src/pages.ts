// The server's pages, beside the text.

import * as vscode from "vscode";

export interface Page {
  title: string;
  markdown: string;
  html: string | null;
  uri?: string | null;
  run?: string | null;
}

let panel: vscode.WebviewPanel | undefined;

export function isPage(value: unknown): value is Page {
  return typeof value === "object" && value !== null && "markdown" in value && "title" in value;
}

// One panel for all pages. The headings of ways get a link that takes the way.
export async function show(page: Page): Promise<void> {
  if (!panel) {
    panel = vscode.window.createWebviewPanel("oomlint", page.title, vscode.ViewColumn.Beside, {
      enableCommandUris: ["oomlint.takeWay"],
    });
    panel.onDidDispose(() => (panel = undefined));
  }
  panel.title = page.title;
  panel.webview.html = page.html ?? (await rendered(page));
  panel.reveal(undefined, true);
}

async function rendered(page: Page): Promise<string> {
  const body = await vscode.commands.executeCommand<string>("markdown.api.render", page.markdown);
  const linked = body.replace(/(<h2[^>]*>)Way (\d+)/g, (all, start: string, number: string) => {
    const asked = encodeURIComponent(JSON.stringify([{ uri: page.uri, run: page.run, number: Number(number) }]));
    return page.uri ? `${start}<a href="command:oomlint.takeWay?${asked}">Take way ${number}</a>` : all;
  });
  return `<!DOCTYPE html><html><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data: https:">
<style>
body { font-family: var(--vscode-font-family); font-size: var(--vscode-font-size); padding: 0 1.2em 2em; line-height: 1.5; }
table { border-collapse: collapse; } td, th { padding: .2em .8em .2em 0; text-align: left; }
td { border-top: 1px solid var(--vscode-panel-border); } h2 { margin-top: 1.6em; font-size: 1.1em; }
pre { background: var(--vscode-textCodeBlock-background); padding: .8em; overflow-x: auto; }
code { font-family: var(--vscode-editor-font-family); }
</style></head><body>${linked}</body></html>`;
}
