module github.com/ashlar-dev/storage/tools/mutation

go 1.26.0
