"""``python -m oomlint_schemas``: write every schema file anew."""

from oomlint_schemas import path_of
from oomlint_schemas.generate import schemas, text_of

for name, schema in schemas().items():
    path_of(name).write_text(text_of(schema), "utf-8")
