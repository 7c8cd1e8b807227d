"""How an answer is shown: blocks of text, tables and parts, drawn for a terminal, a file or a notebook."""
