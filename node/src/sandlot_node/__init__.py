"""Sandlot's node agent: prepares container images on its node, for slots that lay them under a sandbox at the claim."""
