// The VS Code extension: starts `oomlint lsp`, shows the verdict in the status bar, lets the user
// choose the hardware. Everything else is the server's.

import * as vscode from "vscode";
import { LanguageClient } from "vscode-languageclient/node";
import { isPage, show } from "./pages";
import { Server } from "./server";

const KEYS = ["hardware", "hostMemory", "configuration", "select", "ignore"] as const;

interface Verdict {
  name: string;
  // What becomes of the run: that it ends before its first step, or whether its memory suffices.
  outcome: "fits" | "tight" | "does_not_fit" | "unknown" | "ends";
  short: string;
  text: string;
}

interface Card {
  name: string;
  gib: number;
}

const ICONS: Record<Verdict["outcome"], string> = {
  fits: "$(check)",
  tight: "$(warning)",
  does_not_fit: "$(error)",
  unknown: "$(question)",
  ends: "$(error)",
};
const ORDER: Verdict["outcome"][] = ["ends", "does_not_fit", "tight", "unknown", "fits"];

const verdicts = new Map<string, Verdict[]>();
let server: Server;
let shown: string | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const status = vscode.window.createStatusBarItem("oomlint", vscode.StatusBarAlignment.Right, 90);
  status.name = "oomlint";
  const log = vscode.window.createOutputChannel("oomlint");
  server = new Server(log, { executeCommand: pages }, settings, listen, () => {
    if (!server.client) {
      verdicts.clear();
    }
    refresh(status);
  });
  function listen(client: LanguageClient): void {
    client.onNotification("oomlint/status", (told: { uri: string; runs: Verdict[] }) => {
      verdicts.set(vscode.Uri.parse(told.uri).toString(), told.runs);
      refresh(status);
    });
  }
  context.subscriptions.push(
    status,
    log,
    vscode.commands.registerCommand("oomlint.pickHardware", pickHardware),
    vscode.commands.registerCommand("oomlint.showEstimate", () => showPage("oomlint.estimate")),
    vscode.commands.registerCommand("oomlint.showWays", () => showPage("oomlint.fit")),
    vscode.commands.registerCommand("oomlint.takeWay", (asked: unknown) => ask("oomlint.applyWay", asked)),
    vscode.commands.registerCommand("oomlint.showLog", () => log.show(true)),
    vscode.commands.registerCommand("oomlint.restart", () => server.restart()),
    vscode.window.onDidChangeActiveTextEditor(() => refresh(status)),
    vscode.window.onDidChangeActiveNotebookEditor(() => refresh(status)),
    vscode.window.tabGroups.onDidChangeTabs(() => refresh(status)),
    vscode.workspace.onDidCloseTextDocument((document) => verdicts.delete(document.uri.toString())),
    vscode.workspace.onDidCloseNotebookDocument((book) => verdicts.delete(book.uri.toString())),
    vscode.workspace.onDidGrantWorkspaceTrust(() => server.restart()),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("oomlint.command") || event.affectsConfiguration("python.defaultInterpreterPath")) {
        void server.restart();
      } else if (event.affectsConfiguration("oomlint")) {
        // The server asks for the settings of each folder itself.
        void server.client?.sendNotification("workspace/didChangeConfiguration", { settings: null });
      }
    }),
  );
  void server.restart();
}

export async function deactivate(): Promise<void> {
  await server.stop();
}

function settings(): Record<string, unknown> {
  const all = vscode.workspace.getConfiguration("oomlint");
  return Object.fromEntries(KEYS.map((key) => [key, all.get(key) || null]));
}

// The server's pages are shown here, beside the text, rather than opened as files.
async function pages(name: string, given: unknown[], next: (name: string, given: unknown[]) => unknown): Promise<unknown> {
  const answer: unknown = await next(name, given);
  if (isPage(answer)) {
    await show(answer);
  }
  return answer;
}

// The verdict on the document that is edited, of a cell's the notebook; it stays while a page of ours, or no text at all, has focus.
function refresh(status: vscode.StatusBarItem): void {
  if (server.trouble !== undefined) {
    status.text = "$(warning) oomlint";
    status.tooltip = `${server.trouble}\n\nClick to start it again`;
    status.command = "oomlint.restart";
    status.backgroundColor = new vscode.ThemeColor("statusBarItem.warningBackground");
    status.show();
    return;
  }
  const book = vscode.window.activeNotebookEditor?.notebook;
  const active = (book ?? vscode.window.activeTextEditor?.document)?.uri.toString();
  shown = active ?? (shown !== undefined && isOpen(shown) ? shown : undefined);
  const runs = (shown && verdicts.get(shown)) || [];
  if (!runs.length) {
    status.hide();
    return;
  }
  const worst = [...runs].sort((a, b) => ORDER.indexOf(a.outcome) - ORDER.indexOf(b.outcome))[0];
  status.text = `${ICONS[worst.outcome]} ${worst.short}`;
  status.tooltip = `${runs.map((run) => run.text).join("\n")}\n\nClick to choose the hardware`;
  status.command = "oomlint.pickHardware";
  status.backgroundColor =
    worst.outcome === "ends" || worst.outcome === "does_not_fit"
      ? new vscode.ThemeColor("statusBarItem.errorBackground")
      : worst.outcome === "tight"
        ? new vscode.ThemeColor("statusBarItem.warningBackground")
        : undefined;
  status.show();
}

function isOpen(uri: string): boolean {
  const documents = [...vscode.workspace.textDocuments, ...vscode.workspace.notebookDocuments];
  return documents.some((document) => !document.isClosed && document.uri.toString() === uri);
}

async function ask<T>(command: string, asked?: unknown): Promise<T | undefined> {
  const given = { command, arguments: asked === undefined ? [] : [asked] };
  try {
    return await server.client?.sendRequest<T>("workspace/executeCommand", given);
  } catch {
    return undefined; // the log has it, and the server says what the user has to know
  }
}

async function pickHardware(): Promise<void> {
  const cards = (await ask<Card[]>("oomlint.hardware")) ?? [];
  const card = await vscode.window.showQuickPick(
    [
      { label: "What the files say", description: "no hardware of its own for the editor", name: "" },
      { label: "This machine", description: "asks nvidia-smi", name: "auto" },
      ...cards.map((c) => ({ label: c.name, description: `${c.gib} GiB`, name: c.name })),
    ],
    { title: "On which cards will it run?" },
  );
  if (!card) {
    return;
  }
  let hardware: string | undefined = card.name || undefined;
  if (hardware && hardware !== "auto") {
    const count = await vscode.window.showInputBox({
      title: "How many of them?",
      prompt: "GPUs per node, such as 8, or 2x8 for two nodes",
      value: "8",
      validateInput: (text) => (/^(\d+x)?\d+$/.test(text) ? undefined : "write 8, or 2x8"),
    });
    if (!count) {
      return;
    }
    hardware = `${count}x${hardware}`;
  }
  const uri = shown === undefined ? undefined : vscode.Uri.parse(shown);
  const folder = uri && vscode.workspace.getWorkspaceFolder(uri);
  const target = !vscode.workspace.workspaceFolders?.length
    ? vscode.ConfigurationTarget.Global
    : folder && vscode.workspace.workspaceFolders.length > 1
      ? vscode.ConfigurationTarget.WorkspaceFolder
      : vscode.ConfigurationTarget.Workspace;
  await vscode.workspace.getConfiguration("oomlint", folder).update("hardware", hardware, target);
}

async function showPage(command: string): Promise<void> {
  if (shown !== undefined) {
    await vscode.commands.executeCommand(command, { uri: shown });
  }
}
