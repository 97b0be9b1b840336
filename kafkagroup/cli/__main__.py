"""`python -m kafkagroup.cli`: the command `kafkagroup` for machines on which its script is not on the PATH."""

from kafkagroup.cli import main

main()
