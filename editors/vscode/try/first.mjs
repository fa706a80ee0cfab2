// The first minute, and the worst one: nothing is installed, what is installed is too old, the server
// dies. Each is told in one message, stays in the status bar, and is mended by one click.

import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gone, open, picture, run, seen, squiggles, verdict } from "./screen.mjs";
import { oomlint } from "./serving.mjs";

// An interpreter of which the state is a word in a file: without oomlint, with an old one, with ours, with one
// that dies as soon as it has started. Its pip installs ours.
export function settings(work) {
  const bin = join(work, "venv", "bin");
  mkdirSync(bin, { recursive: true });
  const python = join(bin, "python");
  const ours = oomlint.map((word) => `'${word}'`).join(" ");
  writeFileSync(
    python,
    `#!/bin/sh
state=$(cat '${work}/state')
echo "$$ $*" >> '${work}/calls'
case "$*" in
  "-m pip --version") echo "pip 24.0" ;;
  "-m pip install"*) sleep 3; [ "$state" = refused ] && { echo "error: no network" >&2; exit 1; }; echo installed > '${work}/state' ;;
  "-m oomlint --version") case "$state" in missing|refused) echo "No module named oomlint" >&2; exit 1 ;; old) echo "oomlint 0.0.1" ;; *) exec ${ours} --version ;; esac ;;
  "-m oomlint lsp"*) [ "$state" = dying ] && { echo "Traceback: no memory" >&2; exit 1; }; echo $$ > '${work}/pid'; exec ${ours} lsp ;;
esac
`,
  );
  chmodSync(python, 0o755);
  writeFileSync(join(work, "state"), "missing");
  return { "python.defaultInterpreterPath": python };
}

export async function play(page, { work }) {
  const toast = page.locator(".notification-toast");
  const said = (text) => toast.filter({ hasText: text });
  const button = (name) => toast.getByRole("button", { name, exact: true });
  const ours = page.locator(".statusbar-item", { hasText: "oomlint" });
  const become = (state) => writeFileSync(join(work, "state"), state);
  const alone = async () => {
    await page.waitForTimeout(4000);
    const count = await toast.count();
    if (count !== 1) {
      throw new Error(`${count} messages about one trouble`);
    }
    console.log("one message");
  };

  become("missing");
  await open(page, "config.yaml");
  await seen("nothing is installed", said("oomlint is not installed"));
  await alone();
  await seen("it stays in the status bar", ours);
  await picture(page, "vscode-missing.png");

  become("refused");
  await button("Install").click();
  await seen("installing fails in words", said("could not be installed"));
  await alone();
  await picture(page, "vscode-install-fails.png");

  become("missing");
  await button("Try again").click();
  await seen("the offer again", said("oomlint is not installed"));
  await button("Install").click();
  await seen("it says that it installs", said("Installing oomlint"));
  await picture(page, "vscode-installing.png");
  await seen("findings once it is installed", squiggles(page));
  await seen("the verdict", verdict(page));
  await gone("every message", toast);

  // It dies once: it comes back, and nobody is told.
  const first = pid(work);
  process.kill(first);
  await seen("a new server's verdict", verdict(page));
  await until(() => pid(work) !== first);
  await seen("findings of the new server", squiggles(page));
  if (await toast.count()) {
    throw new Error("a message about a server that came back");
  }

  // It dies at every start: one message, no stale findings, and a click brings it back.
  become("dying");
  process.kill(pid(work));
  await seen("it has ended", said("ended 4 times"));
  await alone();
  await gone("stale findings", squiggles(page));
  await gone("the stale verdict", verdict(page));
  await picture(page, "vscode-ended.png");
  become("installed");
  await page.mouse.move(600, 300); // the tooltip of what the mouse was left on is in the way
  await gone("tooltips", page.locator(".monaco-hover:not(.hidden), .workbench-hover"));
  await ours.first().click();
  await seen("a click brings it back", squiggles(page));
  await seen("and the verdict", verdict(page));

  // One that is too old.
  become("old");
  await run(page, "oomlint: Restart the language server");
  await seen("one that is too old", said("is too old"));
  await picture(page, "vscode-old.png");
  await button("Update").click();
  await seen("findings after the update", squiggles(page));
  console.log("the first minute is told in single messages");
}

function pid(work) {
  return existsSync(join(work, "pid")) ? Number(readFileSync(join(work, "pid"), "utf8")) : 0;
}

async function until(holds) {
  for (let tries = 0; tries < 240 && !holds(); tries++) {
    await new Promise((done) => setTimeout(done, 250));
  }
}
