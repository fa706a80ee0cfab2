// Where oomlint is: the user's own command, the interpreter that is chosen for the folder, the search
// path. Knows nothing of VS Code, so that it can be tried without one.

import { execFile } from "node:child_process";
import { homedir } from "node:os";
import { join } from "node:path";

// The first version of oomlint whose server speaks as this extension does.
export const OLDEST = "0.1.0";
const PATIENCE = 30_000;
// Installing takes what the network takes.
const LONGEST_INSTALL = 15 * 60_000;

export interface Place {
  command: string[];
  // As a message calls it: "the interpreter /venv/bin/python", "the search path".
  where: string;
}

export interface Found extends Place {
  version: string;
}

export type Outcome =
  | { kind: "found"; server: Found }
  | { kind: "old"; server: Found }
  | { kind: "missing"; where: string[] };

export type Run = (command: string[]) => Promise<string>;

// The places to look at, in this order. In a folder that is not trusted only the search path counts: its
// settings, which name the interpreter, may be anybody's.
export function places(given: string[], interpreter: string | undefined, isTrusted: boolean): Place[] {
  if (given.length) {
    return [{ command: given, where: "the setting oomlint.command" }];
  }
  const found: Place[] = [];
  if (interpreter && isTrusted) {
    found.push({ command: [interpreter, "-m", "oomlint", "lsp"], where: `the interpreter ${interpreter}` });
  }
  found.push({ command: ["oomlint", "lsp"], where: "the search path" });
  // uv and pipx put programs there (their "bin directory"), where VS Code need not search.
  const own = join(homedir(), ".local", "bin", "oomlint");
  found.push({ command: [own, "lsp"], where: "~/.local/bin" });
  return found;
}

// The first place that has a server which is new enough; else one that is too old; else where was looked.
export async function find(wanted: Place[], run: Run = execute): Promise<Outcome> {
  let old: Found | undefined;
  for (const place of wanted) {
    const said = await run([...place.command.filter((word) => word !== "lsp"), "--version"]).catch(() => "");
    const version = /oomlint (\d+(?:\.\d+)+\S*)/.exec(said)?.[1];
    if (version === undefined) {
      continue;
    }
    const server = { ...place, version };
    if (!isOlder(version, OLDEST)) {
      return { kind: "found", server };
    }
    old ??= server;
  }
  return old ? { kind: "old", server: old } : { kind: "missing", where: wanted.map((place) => place.where) };
}

export function isOlder(version: string, than: string): boolean {
  const [one, other] = [version, than].map((text) => text.split(/[.+-]/).map((part) => parseInt(part, 10) || 0));
  for (let i = 0; i < Math.max(one.length, other.length); i++) {
    if ((one[i] ?? 0) !== (other[i] ?? 0)) {
      return (one[i] ?? 0) < (other[i] ?? 0);
    }
  }
  return false;
}

// What is installed: oomlint with its language server, from where it stands as long as no package index has it.
const PACKAGE = "oomlint[editor] @ git+https://github.com/oomlint/oomlint";

// How oomlint would be installed: into the chosen interpreter, else as a tool of its own.
export async function installer(interpreter: string | undefined, run: Run = execute): Promise<string[] | undefined> {
  const ways = [
    ...(interpreter ? [[interpreter, "-m", "pip"]] : []),
    ["uv"],
    ["pipx"],
  ];
  for (const way of ways) {
    if (await run([...way, "--version"]).then(Boolean, () => false)) {
      const words = way[0] === "uv" ? ["tool", "install", "--upgrade"] : way[0] === "pipx" ? ["install", "--force"] : ["install", "--upgrade"];
      return [...way, ...words, PACKAGE];
    }
  }
  return undefined;
}

export function install(way: string[]): Promise<string> {
  return execute(way, LONGEST_INSTALL);
}

function execute(command: string[], timeout = PATIENCE): Promise<string> {
  const [program, ...words] = command;
  return new Promise((done, fail) => {
    execFile(program, words, { timeout, windowsHide: true }, (error, out, said) => {
      if (error) {
        fail(new Error(`${command.join(" ")}: ${said.trim() || error.message}`));
      } else {
        done(out);
      }
    });
  });
}
