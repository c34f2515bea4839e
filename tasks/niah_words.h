/* niah_words.h: the words of the NIAH tasks and of the tiny pair's dialect.
 *
 * Shared with the trainer of the embedded models (tests/oracle/tinypair): the order of the lists fixes their token ids, so a
 * change here makes the tiny pair worthless. Includes nothing, so that the trainer links niah_words.c alone. */
#ifndef KVB_NIAH_WORDS_H
#define KVB_NIAH_WORDS_H

extern const char *const words_start[11]; /* sentence starters (tokens without and with a leading space) */
extern const char *const words_func[26];  /* function words */
extern const char *const words_key[256];  /* key words: never used in filler sentences */
extern const char *const words_noun[118]; /* filler words: people first (N_PEOPLE), then things */
extern const char *const words_adj[62];
extern const char *const words_verb[40]; /* past tense, all take an object */
extern const char *const words_adv[20];

enum { N_PEOPLE = 50 }; /* words_noun[0 .. N_PEOPLE) are people */
#define WORDS(list) ((int)(sizeof(list) / sizeof((list)[0])))

#endif
