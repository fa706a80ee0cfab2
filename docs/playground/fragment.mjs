// A state as the fragment of an address: JSON, deflated, in the letters that addresses take.

export async function packed(state) {
  const stream = new Blob([JSON.stringify(state)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// undefined where the text is no state of ours
export async function unpacked(text) {
  if (!text) return undefined;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const state = await new Response(stream).json();
    return Array.isArray(state.files) ? state : undefined;
  } catch {
    return undefined;
  }
}
