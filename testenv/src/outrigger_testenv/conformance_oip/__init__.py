"""A black-box suite for a server of the Open Inference Protocol, with the models of
`outrigger_testenv.oip.models`.

Each check is a rule of the protocol, of its extensions, or of this project. It has cases over REST,
over gRPC, and through the clients of other projects, each with the expected answer and the one
seen.
"""
