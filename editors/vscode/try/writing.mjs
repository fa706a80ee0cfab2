// Writing: an empty file, a text without a name, settings, paths, a notebook; and going from file to file.

import { writeFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { complete, go, open, pick, picture, run, seen, squiggles, verdict } from "./screen.mjs";

const TEXT = `base_model: meta-llama/Llama-3.1-8B
micro_batch_size: 8
sequence_len: 8192
gradient_accumulation_steps: 1
optimizer: adamw_torch
bf16: true
`;
const NOTEBOOK = {
  cells: [
    { cell_type: "markdown", metadata: {}, source: ["# A run\n"], id: "a" },
    {
      cell_type: "code", execution_count: null, metadata: {}, outputs: [], id: "b",
      source: [
        "from transformers import AutoModelForCausalLM\n",
        "from trl import SFTConfig, SFTTrainer\n",
        'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")\n',
      ],
    },
    {
      cell_type: "code", execution_count: null, metadata: {}, outputs: [], id: "c",
      source: [
        "args = SFTConfig(per_device_train_batch_size=16, max_length=8192, bf16=True)\n",
        "trainer = SFTTrainer(model=model, args=args, train_dataset=data)\n",
        "trainer.train()\n",
      ],
    },
  ],
  metadata: { language_info: { name: "python" }, kernelspec: { name: "python3", display_name: "Python 3", language: "python" } },
  nbformat: 4,
  nbformat_minor: 5,
};

export function prepare({ edited }) {
  writeFileSync(join(edited, "run.ipynb"), JSON.stringify(NOTEBOOK, null, 1));
  writeFileSync(join(edited, "axolotl_new.yaml"), "");
}

export async function play(page, { edited }) {
  const suggested = async (what, text) => {
    const widget = await complete(page);
    await seen(what, widget.filter({ hasText: text }));
    await picture(page, `vscode-${what.replaceAll(" ", "-")}.png`);
    await page.keyboard.press("Escape");
  };
  await open(page, "config.yaml");
  await seen("findings", squiggles(page));

  // From name to file and back to who names it.
  await go(page, 25, 14);
  await page.keyboard.press("F12");
  await seen("definition", page.locator(".tab.active", { hasText: "zero3_bf16.json" }));
  await go(page, 2, 5);
  await page.keyboard.press("F12");
  await seen("who names it", page.locator(".tab.active", { hasText: "config.yaml" }));
  await page.keyboard.press("Control+Shift+O");
  await seen("outline", page.locator(".quick-input-list", { hasText: "micro_batch_size" }));
  await picture(page, "vscode-outline.png");
  await page.keyboard.press("Escape");

  // What can stand where.
  await go(page, 25, 12);
  await page.keyboard.press("Shift+End");
  await page.keyboard.press("Delete");
  await suggested("paths", "zero3_bf16.json");
  await page.keyboard.press("Control+Z");
  await go(page, 1, 13);
  await page.keyboard.press("Shift+End");
  await page.keyboard.type("Qwen2.5-7B", { delay: 20 });
  await suggested("models", "Qwen/Qwen2.5-7B");
  await page.keyboard.press("Control+Z");
  await run(page, "File: Revert File");
  await open(page, "oomlint.toml");
  await page.keyboard.press("Control+A");
  await page.keyboard.type('hardware = "8xA100', { delay: 20 });
  await suggested("cards", "A100-80GB");
  await run(page, "File: Revert File");
  await open(page, "axolotl_new.yaml");
  await suggested("an empty file", "base_model");

  // A rename moves what names the file.
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: "zero3_bf16.json" }).first().click();
  await page.keyboard.press("F2");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("zero3.json");
  await page.keyboard.press("Enter");
  await seen("what a rename asks", page.locator(".monaco-dialog-box", { hasText: "refactoring changes" }));
  await page.locator(".monaco-dialog-box").getByRole("button", { name: "OK" }).click();
  await open(page, "config.yaml");
  await seen("a rename that is followed", page.locator(".view-line", { hasText: "deepspeed: zero3.json" }));
  await run(page, "File: Save All");
  await page.waitForTimeout(1500);
  if (!readFileSync(join(edited, "config.yaml"), "utf8").includes("deepspeed: zero3.json\n")) {
    throw new Error("the rename was not saved");
  }

  // A text that is in no file yet.
  await run(page, "New Untitled Text File");
  await page.locator(".tab.active", { hasText: "Untitled-1" }).waitFor();
  await run(page, "Change Language Mode");
  await pick(page, "YAML");
  await page.locator(".monaco-editor .view-line").first().click();
  await page.keyboard.insertText(TEXT);
  await seen("findings in a text without a name", squiggles(page));
  await seen("its verdict", verdict(page));
  await picture(page, "vscode-untitled.png");

  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: "run.ipynb" }).first().dblclick();
  await page.locator(".notebook-editor, .notebookOverlay").first().waitFor();
  await seen("findings in a cell", page.locator(".notebookOverlay").locator(".squiggly-warning, .squiggly-error, .squiggly-info"));
  await seen("the verdict on a notebook", verdict(page).filter({ hasText: /130 GiB/ }));
  await picture(page, "vscode-notebook.png");
  console.log("written, renamed and followed");
}
