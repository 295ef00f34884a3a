#!/bin/sh
# The official image's entry point is java, and its users pass `-jar DynamoDBLocal.jar …`. The artifacts of the package
# repository come without that jar, only with what it loads: name the main class instead.
for arg; do
	shift
	case $arg in
	-jar) ;;
	DynamoDBLocal.jar)
		set -- "$@" -Djava.library.path=./DynamoDBLocal_lib -cp './DynamoDBLocal_lib/*' \
			software.amazon.dynamodb.services.local.main.ServerRunner
		;;
	*) set -- "$@" "$arg" ;;
	esac
done
exec java "$@"
