"""Adapters to other people's frameworks and protocols; `import sandlot` loads none of them."""
