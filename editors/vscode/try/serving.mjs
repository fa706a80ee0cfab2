// A code-server with only this extension, its settings, and nothing of the user's.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const vsix = resolve(here, "../oomlint.vsix");
const codeServer = join(here, "node_modules/code-server/out/node/entry.js");
// code-server starts further processes with the Node.js that runs it, which must be the one it asks for.
const node = join(here, "node_modules/node/bin/node");

// The command that OOMLINT names, with its whole path: what VS Code's extensions search is the path of a
// login shell, not ours.
export const oomlint = findCommand((process.env.OOMLINT ?? "oomlint").split(" "));

// Starts it with the settings in the folder `work`, with `home` as the user's home; its address.
export async function serve(work, settings) {
  const data = join(work, "data");
  const all = {
    "security.workspace.trust.enabled": false,
    "workbench.startupEditor": "none",
    "workbench.colorTheme": "Default Light Modern",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": true,
    "telemetry.telemetryLevel": "off",
    "editor.fontSize": 13,
    "editor.minimap.enabled": false,
    "files.autoSave": "off", // as on a desktop
    ...settings,
  };
  for (const place of ["User", "Machine"]) {
    mkdirSync(join(data, place), { recursive: true });
    writeFileSync(join(data, place, "settings.json"), JSON.stringify(all));
  }
  const common = [
    codeServer, "--config", join(work, "config.yaml"),
    "--user-data-dir", data, "--extensions-dir", join(work, "extensions"),
  ];
  execFileSync(node, [...common, "--install-extension", vsix], { stdio: "pipe" });
  const port = await freePort();
  const home = join(work, "home");
  mkdirSync(home, { recursive: true });
  const server = spawn(
    node,
    [
      ...common, "--auth", "none", "--bind-addr", `127.0.0.1:${port}`, "--disable-telemetry",
      "--disable-update-check", "--disable-workspace-trust", "--disable-getting-started-override",
    ],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, HOME: home } },
  );
  process.on("exit", () => server.kill());
  const log = [];
  server.stdout.on("data", (text) => log.push(text));
  server.stderr.on("data", (text) => log.push(text));
  const url = `http://127.0.0.1:${port}`;
  for (let tries = 0; tries < 240; tries++) {
    if (server.exitCode !== null) {
      break;
    }
    const answer = await fetch(`${url}/healthz`).catch(() => undefined);
    if (answer?.ok) {
      return { url, stop: () => server.kill() };
    }
    await new Promise((done) => setTimeout(done, 250));
  }
  throw new Error(`code-server does not start:\n${log.join("").slice(-4000)}`);
}

function findCommand([program, ...args]) {
  return [execFileSync("sh", ["-c", 'command -v "$1"', "sh", program]).toString().trim(), ...args];
}

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}
