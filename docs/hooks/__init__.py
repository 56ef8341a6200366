"""What the site is made with: links, diagrams and the generated reference (mkdocs.yml, docs/decisions/0032)."""
