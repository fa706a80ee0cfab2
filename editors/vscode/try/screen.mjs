// What somebody does before a VS Code, and looks for on its screen.

import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";

const flag = process.argv.indexOf("--shots");
const shots = flag > 0 ? resolve(process.argv[flag + 1]) : undefined;

export async function open(page, name) {
  await page.locator(".monaco-workbench").waitFor();
  await page.locator(".explorer-folders-view", { hasText: name }).waitFor();
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: name }).first().dblclick();
  await page.locator(".tab.active", { hasText: name }).waitFor();
  await page.locator(".monaco-editor .view-line").first().waitFor();
}

// Runs a command of the palette.
export async function run(page, command) {
  await page.keyboard.press("F1");
  await pick(page, command);
}

export async function pick(page, label) {
  await page.locator(".quick-input-widget input").first().waitFor();
  await page.keyboard.type(label);
  await page.locator(".quick-input-list .monaco-list-row", { hasText: starting(label) }).first().click();
}

// Rows whose words begin so, after the category of a command.
function starting(label) {
  return new RegExp(`^([A-Z]\\w+: )?${label.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`);
}

// Puts the cursor somewhere, by line and column.
export async function go(page, line, column) {
  await page.keyboard.press("Control+G");
  await page.locator(".quick-input-widget input").first().waitFor();
  await page.keyboard.type(`${line}:${column}`);
  await page.keyboard.press("Enter");
  await page.locator(".quick-input-widget").waitFor({ state: "hidden" });
}

// Asks for the actions at the cursor, again where VS Code has dropped a menu that took its server long to fill.
export async function actions(page, words) {
  const menu = page.locator(".action-widget", { hasText: words });
  for (let tries = 1; tries <= 5 && !(await menu.count()); tries++) {
    await page.keyboard.press("Control+.");
    await menu.waitFor({ timeout: 20_000 }).catch(() => undefined);
  }
  return menu;
}

// Asks for what can stand at the cursor.
export async function complete(page) {
  await run(page, "Trigger Suggest");
  return page.locator(".suggest-widget.visible");
}

export const squiggles = (page) => page.locator(".squiggly-warning, .squiggly-error, .squiggly-info");

export const verdict = (page) => page.locator(".statusbar-item", { hasText: "GiB" });

export async function seen(what, place) {
  await place.first().waitFor({ state: "visible" });
  console.log(`seen: ${what}`);
}

export async function gone(what, place) {
  await place.first().waitFor({ state: "detached" });
  console.log(`gone: ${what}`);
}

export async function picture(page, name) {
  if (shots) {
    mkdirSync(shots, { recursive: true });
    await page.waitForTimeout(1500); // what was loading is drawn, notices have gone
    await page.screenshot({ path: join(shots, name) });
  }
}
