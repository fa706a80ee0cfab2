// Uses the playground as a reader would: playground.mjs ADDRESS CHROMIUM FOLDER prints what it saw, as JSON.
import { chromium } from "playwright-core";

const [address, executablePath, folder] = process.argv.slice(2);
const patience = { timeout: 240_000 };
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1360, height: 900 } });
const seen = { errors: [], hosts: [] };
page.on("pageerror", (error) => seen.errors.push(String(error)));
page.on("request", (request) => seen.hosts.push(new URL(request.url()).host));
const since = Date.now();
const text = (selector) => page.textContent(selector);

await page.goto(address);
await page.waitForSelector("body[data-ready]", patience);
seen.ready_seconds = (Date.now() - since) / 1000;
await page.waitForSelector(".verdict", patience);
seen.answer_seconds = (Date.now() - since) / 1000;
seen.first = await text(".verdict");
seen.marked = await page.$$eval(".lines .marked", (lines) => lines.map((line) => Number(line.textContent)));
seen.bars = (await page.$$(".bar")).length;

const wide = () => page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
seen.wide = {};
for (const [name, width, scheme] of [["wide", 1360, "light"], ["dark", 1360, "dark"], ["phone", 360, "light"]]) {
  await page.setViewportSize({ width, height: 860 });
  await page.emulateMedia({ colorScheme: scheme });
  seen.wide[name] = await wide();
  await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
}
await page.setViewportSize({ width: 1360, height: 900 });

await page.click(".apply");
await page.waitForSelector(".verdict.fits", patience);
seen.applied = await page.inputValue("#text");
seen.link = page.url();

async function example(words) {
  const value = await page.$eval(`#examples option:text("${words}")`, (option) => option.value);
  await page.selectOption("#examples", value);
  await page.waitForFunction(() => !document.querySelector("#answer").hasAttribute("aria-busy"), null, patience);
  await page.waitForTimeout(1000); // asked a moment after the last change
  await page.waitForFunction(() => !document.querySelector("#answer").hasAttribute("aria-busy"), null, patience);
  return text("#answer");
}

seen.host = await example("small host");
seen.charts = await page.$$eval(".chart", (charts) => charts.map((chart) => chart.children.length));
await page.screenshot({ path: `${folder}/host.png`, fullPage: true });
seen.help = await example("first save");
seen.shell = await example("shell script");
await page.screenshot({ path: `${folder}/shell.png`, fullPage: true });
await page.click(".apply");
await page.waitForFunction(() => document.querySelector("#text").value.includes("--low_cpu_fsdp"), null, patience);
seen.script = await page.inputValue("#text");

await page.click("#tab-model");
seen.machine = await page.inputValue("[name=hardware]");
await page.fill("[name=model]", "lama-3.1-8b");
await page.waitForSelector(".trouble", patience);
seen.unknown = await text(".trouble");
await page.fill("[name=model]", "Qwen/Qwen2.5-1.5B");
await page.waitForFunction(() => /Smallest common cards/.test(document.querySelector("#answer").textContent), null, patience);
seen.model = await text("#answer");
await page.fill("[name=hardware]", "RTX-4090");
await page.click("#write");
await page.waitForFunction(() => !document.querySelector("#files").hidden && document.querySelector(".verdict.fits"), null, patience);
seen.written = await page.inputValue("#text");

const other = await browser.newPage();
await other.goto(seen.link);
await other.waitForFunction(() => document.querySelector("#text")?.value, null, patience);
seen.restored = await other.inputValue("#text");
await browser.close();
seen.hosts = [...new Set(seen.hosts)];
console.log(JSON.stringify(seen));
