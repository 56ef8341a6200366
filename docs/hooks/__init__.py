"""The hooks of the site's build: links, diagrams and the generated reference (mkdocs.yml, docs/decisions/0032)."""
