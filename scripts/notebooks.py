# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs every notebook of docs/notebooks, which are kept without outputs. `make test-notebooks` runs this.

notebooks.py FOLDER: in their folder, each from its beginning to its end. Exit 1: a cell failed, or one is kept with what it put out.
"""

import pathlib
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

folder = pathlib.Path(sys.argv[1])
notebooks = sorted(folder.glob("*.ipynb"))
assert notebooks, f"no notebooks in {folder}"
bad = []
for path in notebooks:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any(cell.outputs or cell.execution_count for cell in code):
        bad.append(f"{path.name}: kept with outputs; allowed: none (clear them before you commit)")
        continue
    try:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    except CellExecutionError as error:
        bad.append(f"{path.name}: {error}")
        continue
    shown = [output.get("data", {}).get("text/plain", "") for cell in code for output in cell.outputs]
    charts = sum(text.startswith("alt.Chart") for text in shown)
    if not charts:
        bad.append(f"{path.name}: no chart")
    print(f"{path.name}: {len(code)} cells, {charts} charts")
sys.exit("\n".join(bad) or 0)
