// The VS Code extension: starts `oomlint lsp`, shows the verdict in the status bar, lets the user
// choose the hardware. Everything else is the server's.

import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

const LANGUAGES = ["yaml", "json", "jsonc", "toml", "python", "shellscript", "makefile", "dockerfile"];
const KEYS = ["hardware", "hostMemory", "configuration", "select", "ignore"] as const;

interface Verdict {
  name: string;
  verdict: "fits" | "tight" | "does_not_fit" | "unknown";
  short: string;
  text: string;
}

interface Page {
  title: string;
  markdown: string;
  html: string | null;
}

interface Card {
  name: string;
  gib: number;
}

const ICONS: Record<Verdict["verdict"], string> = {
  fits: "$(check)",
  tight: "$(warning)",
  does_not_fit: "$(error)",
  unknown: "$(question)",
};

let client: LanguageClient | undefined;
const verdicts = new Map<string, Verdict[]>();

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const status = vscode.window.createStatusBarItem("oomlint", vscode.StatusBarAlignment.Right, 90);
  status.name = "oomlint";
  status.command = "oomlint.pickHardware";
  context.subscriptions.push(
    status,
    vscode.commands.registerCommand("oomlint.pickHardware", pickHardware),
    vscode.commands.registerCommand("oomlint.showEstimate", () => showPage("oomlint.estimate")),
    vscode.commands.registerCommand("oomlint.showWays", () => showPage("oomlint.fit")),
    vscode.commands.registerCommand("oomlint.restart", async () => {
      await client?.stop();
      await start(status);
    }),
    vscode.window.onDidChangeActiveTextEditor(() => refresh(status)),
    vscode.workspace.onDidCloseTextDocument((document) => verdicts.delete(document.uri.toString())),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("oomlint.command")) {
        void vscode.commands.executeCommand("oomlint.restart");
      } else if (event.affectsConfiguration("oomlint")) {
        void client?.sendNotification("workspace/didChangeConfiguration", {
          settings: { oomlint: settings() },
        });
      }
    }),
  );
  await start(status);
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

function settings(): Record<string, unknown> {
  const all = vscode.workspace.getConfiguration("oomlint");
  return Object.fromEntries(KEYS.map((key) => [key, all.get(key) || null]));
}

async function start(status: vscode.StatusBarItem): Promise<void> {
  const [command, ...args] = vscode.workspace
    .getConfiguration("oomlint")
    .get<string[]>("command", ["oomlint", "lsp"]);
  const server: ServerOptions = { command, args };
  const options: LanguageClientOptions = {
    documentSelector: LANGUAGES.map((language) => ({ scheme: "file", language })),
    initializationOptions: { ...settings(), status: true },
    middleware: {
      // The server's pages are shown here, beside the text, rather than opened as files.
      executeCommand: async (name, given, next) => {
        const answer: unknown = await next(name, given);
        if (isPage(answer)) {
          show(answer);
        }
        return answer;
      },
    },
  };
  client = new LanguageClient("oomlint", "oomlint", server, options);
  client.onNotification("oomlint/status", (told: { uri: string; runs: Verdict[] }) => {
    verdicts.set(vscode.Uri.parse(told.uri).toString(), told.runs);
    refresh(status);
  });
  try {
    await client.start();
  } catch (error) {
    const choice = await vscode.window.showErrorMessage(
      `oomlint does not start (${error instanceof Error ? error.message : String(error)}). ` +
        "Install it with `pip install '.[editor]'` in a checkout of oomlint, or say where it is in oomlint.command.",
      "Open the settings",
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "oomlint.command");
    }
  }
}

function refresh(status: vscode.StatusBarItem): void {
  const uri = vscode.window.activeTextEditor?.document.uri.toString();
  const runs = (uri && verdicts.get(uri)) || [];
  if (!runs.length) {
    status.hide();
    return;
  }
  const order = ["does_not_fit", "tight", "unknown", "fits"];
  const worst = [...runs].sort((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict))[0];
  status.text = `${ICONS[worst.verdict]} ${worst.short}`;
  status.tooltip = `${runs.map((run) => run.text).join("\n")}\n\nClick to choose the hardware`;
  status.backgroundColor =
    worst.verdict === "does_not_fit"
      ? new vscode.ThemeColor("statusBarItem.errorBackground")
      : worst.verdict === "tight"
        ? new vscode.ThemeColor("statusBarItem.warningBackground")
        : undefined;
  status.show();
}

async function pickHardware(): Promise<void> {
  const cards = (await client?.sendRequest<Card[]>("workspace/executeCommand", {
    command: "oomlint.hardware",
    arguments: [],
  })) ?? [];
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
  const target = vscode.workspace.workspaceFolders
    ? vscode.ConfigurationTarget.Workspace
    : vscode.ConfigurationTarget.Global;
  await vscode.workspace.getConfiguration("oomlint").update("hardware", hardware, target);
}

async function showPage(command: string): Promise<void> {
  const uri = vscode.window.activeTextEditor?.document.uri.toString();
  if (uri) {
    await vscode.commands.executeCommand(command, { uri });
  }
}

function isPage(value: unknown): value is Page {
  return typeof value === "object" && value !== null && "markdown" in value && "title" in value;
}

function show(page: Page): void {
  const panel = vscode.window.createWebviewPanel("oomlint", page.title, vscode.ViewColumn.Beside);
  panel.webview.html =
    page.html ?? `<!DOCTYPE html><html><body><pre>${escape(page.markdown)}</pre></body></html>`;
}

function escape(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
