module github.com/heedhttp/heed

go 1.26.0
