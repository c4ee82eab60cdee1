/* program.h - executes the other programs of the package: sluice-server and
 * sluice-offline. */
#ifndef SL_CLI_PROGRAM_H
#define SL_CLI_PROGRAM_H

/* Execute a program with these arguments, after setting argv[0]. Searches, in this
 * order, the directory of this program, the build tree (src/DIRECTORY), the
 * installation directory, and PATH. Returns only on failure: prints a message and
 * returns an exit status. */
int cli_exec_program(const char *program, const char *directory, char **argv);

#endif /* SL_CLI_PROGRAM_H */
