module lab/tools/probe

go 1.26.0
