module github.com/heedhttp/heed

go 1.26.0

require github.com/dunglas/httpsfv v1.1.2
