"""Where the project stands on the web.

It is not published yet: these are the addresses that it will have, and links in reports lead nowhere
until then. Whoever publishes it elsewhere changes ``REPOSITORY``; a test names the pages, snippets and
packages that say the same. ``oomlint explain`` and the language server show the pages that are
installed.
"""

REPOSITORY = "https://github.com/oomlint/oomlint"
DOCUMENTATION = f"{REPOSITORY}/blob/main/docs/"
SCHEMAS = (
    f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/schemas/oomlint_schemas/"
)
