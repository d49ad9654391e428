module example.org/base

go 1.26.0
