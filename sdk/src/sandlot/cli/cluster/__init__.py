"""What `sandlot doctor --cluster` and `sandlot support-bundle` know of an installation on Kubernetes."""
