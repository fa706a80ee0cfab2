// The server's life: found, started, brought back when it ends, and told of in one message.

import * as vscode from "vscode";
import { CloseAction, ErrorAction, LanguageClient, LanguageClientOptions, State } from "vscode-languageclient/node";
import { find, install, installer, OLDEST, Outcome, places } from "./finding";

const LANGUAGES = ["yaml", "json", "jsonc", "toml", "python", "shellscript", "makefile", "dockerfile"];
// A server that ends this often within so long does not come back by itself.
const MOST_ENDS = 4;
const WITHIN = 180_000;
const LONGEST_GOODBYE = 3_000;

const EXTENSION = "oomlint.oomlint";
const INSTALLERS = ["pip", "uv", "pipx"];

type Middleware = LanguageClientOptions["middleware"];

// Says what goes wrong to the log, and leaves it to Server to tell the user.
class Quiet extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  override warn(message: string, data?: unknown): void {
    super.warn(message, data, false);
  }
}

export class Server {
  client: LanguageClient | undefined;
  trouble: string | undefined;
  private generation = 0;
  private ends: number[] = [];
  private told: string | undefined;

  constructor(
    private readonly log: vscode.OutputChannel,
    private readonly middleware: Middleware,
    private readonly options: () => Record<string, unknown>,
    private readonly listen: (client: LanguageClient) => void,
    private readonly changed: () => void,
  ) {}

  // Starts anew whatever has been before; of several calls the last one counts.
  async restart(isWished = true): Promise<void> {
    const mine = ++this.generation;
    if (isWished) {
      this.ends = [];
      this.told = undefined;
    }
    await this.leave();
    const interpreter = await chosenInterpreter();
    const given = vscode.workspace.getConfiguration("oomlint").get<string[] | null>("command") ?? [];
    const outcome = await find(places(given, interpreter, vscode.workspace.isTrusted));
    if (mine !== this.generation) {
      return;
    }
    if (outcome.kind !== "found") {
      await this.offer(outcome, given, interpreter);
      return;
    }
    this.log.appendLine(`oomlint ${outcome.server.version} of ${outcome.server.where}`);
    const [command, ...args] = outcome.server.command;
    const client = new Quiet("oomlint", "oomlint", { command, args }, this.clientOptions(mine));
    this.client = client;
    this.listen(client);
    try {
      await client.start();
      if (mine === this.generation) {
        this.trouble = undefined;
        this.told = undefined;
        this.changed();
      }
    } catch (error) {
      this.log.appendLine(String(error));
      if (mine === this.generation) {
        await this.ended(mine);
      }
    }
  }

  async stop(): Promise<void> {
    this.generation++;
    await this.leave();
  }

  private clientOptions(mine: number): LanguageClientOptions {
    return {
      documentSelector: [
        ...["file", "untitled"].flatMap((scheme) => LANGUAGES.map((language) => ({ scheme, language }))),
        { notebook: { notebookType: "jupyter-notebook" }, language: "python" },
      ],
      initializationOptions: { ...this.options(), status: true },
      outputChannel: this.log,
      middleware: this.middleware,
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          if (mine === this.generation) {
            void this.ended(mine);
          }
          return { action: CloseAction.DoNotRestart, handled: true };
        },
      },
    };
  }

  // The server has ended without being asked to: it comes back, unless it keeps ending.
  private async ended(mine: number): Promise<void> {
    const now = Date.now();
    this.ends = [...this.ends.filter((end) => now - end < WITHIN), now];
    if (this.ends.length < MOST_ENDS) {
      this.trouble = "oomlint has ended and is started again";
      this.changed();
      await new Promise((done) => setTimeout(done, 500 * 2 ** this.ends.length));
      if (mine === this.generation) {
        await this.restart(false);
      }
      return;
    }
    await this.leave();
    await this.tell(`oomlint ended ${MOST_ENDS} times and is off. The log has its last words.`, {
      Restart: () => this.restart(),
      "Show the log": () => this.log.show(true),
    });
  }

  // Ends the client, also one that never started, and takes back all that it has said.
  private async leave(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    this.changed();
    if (!client) {
      return;
    }
    const goodbye = client.state === State.Running ? client.stop(LONGEST_GOODBYE) : client.dispose();
    await Promise.race([
      goodbye.catch((error: unknown) => this.log.appendLine(String(error))),
      new Promise((done) => setTimeout(done, LONGEST_GOODBYE)),
    ]);
    client.diagnostics?.dispose();
  }

  // Says what is missing, and offers what would mend it: a command that the user has named is theirs to mend.
  private async offer(outcome: Exclude<Outcome, { kind: "found" }>, given: string[], interpreter: string | undefined): Promise<void> {
    const isOld = outcome.kind === "old";
    const said = isOld
      ? `oomlint ${outcome.server.version} of ${outcome.server.where} is too old: this extension needs ${OLDEST} or later.`
      : given.length
        ? `The setting oomlint.command starts no oomlint: ${given.join(" ")}`
        : `oomlint is not installed: looked at ${listed(outcome.where)}.`;
    const way = vscode.workspace.isTrusted && !given.length ? await installer(interpreter) : undefined;
    await this.tell(said, {
      ...(way ? { [isOld ? "Update" : "Install"]: () => this.install(way) } : {}),
      ...(way || given.length ? {} : { "How to install it": () => vscode.commands.executeCommand("extension.open", EXTENSION) }),
      "Open the settings": () => vscode.commands.executeCommand("workbench.action.openSettings", "oomlint.command"),
    });
  }

  private async install(way: string[]): Promise<void> {
    this.log.appendLine(`> ${way.join(" ")}`);
    try {
      const progress = { location: vscode.ProgressLocation.Notification, title: `Installing oomlint with ${way.find((word) => INSTALLERS.includes(word))}` };
      this.log.appendLine(await vscode.window.withProgress(progress, () => install(way)));
    } catch (error) {
      this.log.appendLine(String(error));
      await this.tell("oomlint could not be installed. The log has what was tried, and why it failed.", {
        "Show the log": () => this.log.show(true),
        "Try again": () => this.restart(),
      });
      return;
    }
    await this.restart();
  }

  // One message for one trouble; the status bar keeps saying it.
  private async tell(message: string, choices: Record<string, () => unknown>): Promise<void> {
    this.trouble = message;
    this.changed();
    if (this.told === message) {
      return;
    }
    this.told = message;
    void vscode.window.showWarningMessage(message, ...Object.keys(choices)).then((chosen) => chosen && choices[chosen]());
  }
}

function listed(places: string[]): string {
  return places.length < 2 ? places.join() : `${places.slice(0, -1).join(", ")} and ${places[places.length - 1]}`;
}

interface PythonEnvironments {
  environments?: { getActiveEnvironmentPath(resource?: vscode.Uri): { path: string } };
}

// The interpreter that the Python extension has chosen, else the one that its setting names.
async function chosenInterpreter(): Promise<string | undefined> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const python = vscode.extensions.getExtension<PythonEnvironments>("ms-python.python");
  if (python) {
    const api = python.isActive ? python.exports : await python.activate();
    const path = api?.environments?.getActiveEnvironmentPath(folder).path;
    if (path) {
      return path;
    }
  }
  const named = vscode.workspace.getConfiguration("python", folder).get<string>("defaultInterpreterPath");
  return named && named !== "python" ? named.replace("${workspaceFolder}", folder?.fsPath ?? "") : undefined;
}
