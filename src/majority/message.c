#include "majority/message.h"

const char *sl_message_name(enum sl_message_type type)
{
    static const char *const names[] = {NULL,
#define MESSAGE(name, fields) #name,
                                        SL_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
    };
    return type > SL_MESSAGE_NONE && type < SL_MESSAGE_COUNT ? names[type] : NULL;
}

const char *sl_message_fields(enum sl_message_type type)
{
    static const char *const names[] = {NULL,
#define MESSAGE(name, fields) fields,
                                        SL_MESSAGE_MAP(MESSAGE)
#undef MESSAGE
    };
    return type > SL_MESSAGE_NONE && type < SL_MESSAGE_COUNT ? names[type] : NULL;
}

const char *sl_vote_verdict_name(enum sl_vote_verdict verdict)
{
    static const char *const names[] = {NULL,
#define VERDICT(name) #name,
                                        SL_VERDICT_MAP(VERDICT)
#undef VERDICT
    };
    return verdict > SL_VERDICT_NONE && verdict < SL_VERDICT_COUNT ? names[verdict]
                                                                   : NULL;
}
