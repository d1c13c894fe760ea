// Selection, filter and view in the address of the page, so that a link leads to what its sender saw.

function rememberView() {
  const words = new URLSearchParams();
  if (filter.text) words.set("filter", filter.text);
  if (filter.connection !== null) words.set("connection", filter.connection);
  if (filter.opcode !== null) words.set("opcode", filter.opcode);
  if (filter.choices.size) words.set("only", [...filter.choices].join(" "));
  if (ladder.selected !== null) words.set("packet", ladder.selected);
  if (ladder.mode !== "rows") words.set("mode", ladder.mode);
  if (plot.view !== "ladder") words.set("view", plot.view);
  const address = `#${words}`;
  // Each step does not become an entry of the history.
  if (location.hash !== address && `${location.hash}#` !== address) history.replaceState(null, "", address);
}

/** A number below a limit, or null: an address may say anything. */
function numberBelow(text, limit) {
  const number = text === null || text === "" ? NaN : Number(text);
  return Number.isInteger(number) && number >= 0 && number < limit ? number : null;
}

function recallView() {
  const words = new URLSearchParams(location.hash.slice(1));
  filter.text = part("search").value = words.get("filter") ?? "";
  filter.connection = numberBelow(words.get("connection"), analysis.connections.length);
  const opcode = numberBelow(words.get("opcode"), 256);
  filter.opcode = opcode in analysis.opcodes ? opcode : null;
  part("opcode").value = filter.opcode ?? "";
  const wanted = (words.get("only") ?? "").split(" ");
  filter.choices = new Set(CHOICES.map((choice) => choice.key).filter((key) => wanted.includes(key)));
  for (const button of part("choices").children) button.setAttribute("aria-pressed", filter.choices.has(button.dataset.choice));
  markConnection();
  const packet = numberBelow(words.get("packet"), packets.count);
  applyFilter();
  const mode = words.get("mode") === "time" ? "time" : "rows";
  if (ladder.mode !== mode) chooseMode(mode);
  selectPacket(packet);
  chooseView(VIEWS.includes(words.get("view")) ? words.get("view") : "ladder");
}
