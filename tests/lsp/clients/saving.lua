-- Waits for a finding in the file given on the command line, and saves it: the user's configuration does the rest.
if vim.fn.has("nvim-0.10") == 0 then
  print("this needs Neovim 0.10")
  vim.cmd("quitall!")
end
local function findings()
  return vim.tbl_map(function(diagnostic) return diagnostic.code end, vim.diagnostic.get(0))
end
if not vim.wait(60000, function() return #findings() > 0 end, 50) then
  io.stderr:write("no finding arrived")
  vim.cmd("cquit")
end
print(table.concat(findings(), " "))
vim.cmd("silent write")
vim.cmd("quitall!")
